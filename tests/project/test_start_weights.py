"""A project that starts from weights: the bits of its run, its file beside it, what an edited net has against them."""

from __future__ import annotations

import hashlib
import json
import runpy
import sys
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from safetensors.torch import load_file, save_file
from torch import nn

from app import cli
from app.builder.analysis import analyse
from app.builder.catalog.catalog import catalog
from app.builder.diagnostics.problems import Problem
from app.builder.edits import head as head_edits
from app.builder.edits.head import HeadError
from app.engine.tasks.import_pipeline import project_of
from app.export.script.script import training_script, write_start
from app.export.weights_choice import weights_to_export
from app.preflight import preflight
from app.project import custom_layers, file, file_lock
from app.project.file import ProjectFileError, with_start
from app.project.project import Project
from app.project.weights import start_weights, state_dict_diff, state_dicts
from app.source.compiled import make_module
from app.sources.spec import InputSpec
from app.training.config import StartWeights
from app.training.control import Control
from app.training.events import Failed, to_json
from app.training.loop import train
from app.training.setup.initial_weights import initial_weights
from app.training.setup.weights_header import StartError
from app.util.resources import path as resource_path
from tests.support.training_jobs import SMALL_NET, job

MINE = """
from torch import nn

class Unit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x):
        return x + self.fc(x).relu()

class Mine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.units = nn.Sequential(Unit(), Unit())
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        return self.head(self.units(x))
"""


class Unit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x):
        return x + self.fc(x).relu()


class Two(nn.Module):
    def __init__(self, again: bool) -> None:
        super().__init__()
        self.units = Unit()
        self.head = None if again else Unit()

    def forward(self, x):
        return (self.head or self.units)(self.units(x).tanh())


def kept(tmp_path: Path, source=SMALL_NET, *keys: str, seed: int = 7) -> StartWeights:
    """Start weights that nothing else would draw."""
    torch.manual_seed(seed)
    torch.save(make_module(source).state_dict(), tmp_path / "w.pt")
    state = state_dicts.read(tmp_path / "w.pt")
    return start_weights.chosen(
        state,
        state_dict_diff.diff(state.infos, state_dicts.net_infos(source)),
        keys or None,
    )


def digits() -> Project:
    return file.read(resource_path("examples", "digits.tape"))


def analysed(project: Project):
    return analyse(project.graph, custom_layers.ops_of(project))


def with_weights(tmp_path: Path, project: Project | None = None) -> Project:
    project = project or digits()
    return with_start(project, kept(tmp_path, analysed(project).source))


# --- The bits


@pytest.mark.parametrize("keys", [(), ("linear1.weight", "linear2.bias")])
def test_the_loop_and_the_script_start_from_them_with_the_same_bits(
    tmp_path, keys, monkeypatch, capsys
) -> None:
    a_job = job(
        SMALL_NET,
        epochs=1,
        seed=5,
        batch_size=256,
        start=kept(tmp_path, SMALL_NET, *keys),
    )
    (tmp_path / "model.py").write_text(a_job.source.text)
    (tmp_path / "train.py").write_text(training_script(a_job))
    assert [path.name for path in write_start(a_job, tmp_path / "train.py")] == [
        "train_start.pt"
    ]
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["train.py", "--json"])
    monkeypatch.delitem(sys.modules, "model", raising=False)
    runpy.run_path(
        "train.py", run_name="__main__"
    )  # in this process, where torch is loaded already
    sys.modules.pop("model")
    lines = capsys.readouterr().out.splitlines()
    control = Control()
    ours = [line for event in train(a_job, control) if (line := to_json(event))]
    assert lines == ours
    other = [
        line
        for event in train(replace(a_job, training=replace(a_job.training, start=None)))
        if (line := to_json(event))
    ]
    assert other != ours
    theirs = torch.load(tmp_path / "trained" / "weights.pt", weights_only=True)
    assert all(
        torch.equal(value, theirs[key]) for key, value in control.weights().items()
    )


def test_the_first_loss_is_that_of_a_plain_module_with_them(tmp_path) -> None:
    start = kept(tmp_path, SMALL_NET, "linear1.weight")
    torch.manual_seed(3)
    plain = make_module(SMALL_NET)
    plain.load_state_dict(
        torch.load(tmp_path / "w.pt", weights_only=True)
        | {
            key: value
            for key, value in plain.state_dict().items()
            if key != "linear1.weight"
        }
    )
    mine = initial_weights(SMALL_NET, 3, start)
    assert all(
        torch.equal(value, mine[key]) for key, value in plain.state_dict().items()
    )
    exported = weights_to_export(SMALL_NET, 3, start=start)
    assert all(
        torch.equal(value, exported.state_dict[key]) for key, value in mine.items()
    )
    assert "1 tensors of w.pt" in exported.words


def test_other_precision_is_converted_as_torch_converts_it(tmp_path) -> None:
    start = kept(tmp_path)
    half = {key: value.half() for key, value in load_file(start.path).items()}
    save_file(half, tmp_path / "half.safetensors")
    given = StartWeights(
        str(tmp_path / "half.safetensors"), _sha(tmp_path / "half.safetensors")
    )
    mine = initial_weights(SMALL_NET, 0, given)
    assert all(torch.equal(value, half[key].float()) for key, value in mine.items())


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# --- The file


def test_saving_copies_the_file_beside_the_project_and_opening_finds_it(
    tmp_path,
) -> None:
    project = with_weights(tmp_path)
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
        file.write(project, folder / "net.tape")
        record = json.loads((folder / "net.tape").read_text())["training"]["start"]
        assert record["file"] == "net.safetensors" and record["sha256"] == _sha(
            folder / "net.safetensors"
        )
    Path(project.training.start.path).unlink()
    again = file.read(second / "net.tape")
    assert again.training.start.path == str(
        second / "net.safetensors"
    ) and not preflight_errors(again)
    file.write(again, first / "again.tape")  # saved as, elsewhere: the file comes along
    assert (first / "again.safetensors").is_file()
    moved = tmp_path / "moved"
    second.rename(moved)
    assert not preflight_errors(file.read(moved / "net.tape"))


def test_other_weights_never_take_the_place_of_a_file(tmp_path) -> None:
    project = with_weights(tmp_path)
    file.write(project, tmp_path / "net.tape")
    source = analysed(project).source
    file.write(
        with_start(project, kept(tmp_path, source, seed=8)), tmp_path / "net.tape"
    )
    assert len(list(tmp_path.glob("net*.safetensors"))) == 2
    file.write(project, tmp_path / "net.tape")  # as after undo
    assert file.read(tmp_path / "net.tape").training.start.path == str(
        tmp_path / "net.safetensors"
    )


def preflight_problems(project: Project) -> tuple[Problem, ...]:
    analysis = analysed(project)
    return preflight.problems(
        project,
        analysis,
        start_weights.problems(project.training.start, analysis.source),
    )


def preflight_errors(project: Project) -> list[str]:
    found = preflight_problems(project)
    return [
        f"{problem.message}: {problem.reason}"
        for problem in found
        if problem.severity == "error"
    ]


@pytest.mark.parametrize("what", ["gone", "changed", "cut"])
def test_a_file_that_is_gone_or_changed_is_told_with_the_cure_and_the_project_can_be_saved(
    tmp_path, what
) -> None:
    project = with_weights(tmp_path)
    path = Path(project.training.start.path)
    if what == "gone":
        path.unlink()
    elif what == "changed":
        path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    else:
        path.write_bytes(path.read_bytes()[:-4])
    (problem,) = [
        p for p in preflight_problems(project) if "start weights" in p.message
    ]
    assert (
        str(path) in problem.reason
        and problem.cures[-1].label == "Start from random weights"
    )
    assert problem.cures[-1].settings == {"start": None}
    (failed,) = [
        event
        for event in train(preflight.job(project, analysed(project)))
        if isinstance(event, Failed)
    ]
    assert (
        str(path) in failed.message
        and "Load the weights again" in f"{failed.message} {failed.cure}"
    )
    if what == "gone":
        file.write(project, tmp_path / "net.tape")
        assert (
            file.read(tmp_path / "net.tape").training.start.sha256
            == project.training.start.sha256
        )


@pytest.mark.parametrize(
    "change", [{"file": "x.pt"}, {"sha256": "abc"}, {"keys": [1]}, {"code": "x"}]
)
def test_a_project_file_with_odd_start_weights_is_refused(tmp_path, change) -> None:
    file.write(with_weights(tmp_path), tmp_path / "net.tape")
    raw = json.loads((tmp_path / "net.tape").read_text())
    raw["training"]["start"] |= change
    with pytest.raises(ProjectFileError, match="start"):
        file.loads(json.dumps(raw).encode())


# --- The net is edited


def test_keys_that_fit_no_more_are_named_at_their_layer_and_the_others_can_be_taken(
    tmp_path,
) -> None:
    project = with_weights(tmp_path)
    before = analysed(project)
    key = list(state_dicts.net_infos(before.source))[-2]
    project = head_edits.replace_last(project, catalog(), 7)
    analysis = analysed(project)
    (problem,) = start_weights.problems(project.training.start, analysis.source)
    assert key in problem.reason and problem.node in project.graph.nodes
    start = problem.cures[0].settings["start"]
    assert (
        key not in start.keys and start_weights.problems(start, analysis.source) == ()
    )
    with pytest.raises(StartError, match=key):
        initial_weights(analysis.source, 0, project.training.start)
    assert (
        start_weights.counted(start, analysis.source)[0]
        == len(state_dicts.net_infos(analysis.source)) - 2
    )


def test_transfer_load_replace_the_last_layer_freeze_the_rest_and_train(
    tmp_path,
) -> None:
    """An imported net: the new layer alone moves, everything else keeps the bits that were loaded."""
    (tmp_path / "mine.py").write_text(MINE)
    out = tmp_path / "p.tape"
    assert (
        cli.run(
            [
                "import",
                f"{tmp_path / 'mine.py'}:Mine",
                "--input",
                "2x6",
                "--trust",
                "--keep-weights",
                "-o",
                str(out),
            ]
        )
        == 0
    )
    assert (tmp_path / "p.safetensors").is_file()
    imported = file.read(out)
    exported = tmp_path / "e.safetensors"
    assert cli.run(["export", str(out), "--weights", str(exported)]) == 0
    theirs = load_file(tmp_path / "p.safetensors")
    assert all(
        torch.equal(value, theirs[key]) for key, value in load_file(exported).items()
    )
    assert set(theirs) == set(state_dicts.net_infos(analysed(imported).source))

    project = head_edits.freeze_all_but_last(
        head_edits.replace_last(imported, catalog(), 3), catalog()
    )
    analysis = analysed(project)
    start = (
        start_weights.problems(project.training.start, analysis.source)[0]
        .cures[0]
        .settings["start"]
    )
    model = make_module(analysis.source)
    from app.training.setup.initial_weights import put_in

    put_in(model, start)
    assert [name for name, p in model.named_parameters() if p.requires_grad] == [
        "head.weight",
        "head.bias",
    ]
    assert model.head.out_features == 3
    x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first = model.head.weight.detach().clone()
    for _ in range(2):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert not torch.equal(first, model.head.weight)
    assert all(
        torch.equal(value, theirs[key])
        for key, value in model.state_dict().items()
        if "head" not in key
    )


# --- The last layer


def test_only_the_last_of_two_instances_gets_another_layer_and_all_else_is_frozen() -> (
    None
):
    project = project_of(Two(False), (InputSpec((2, 6)),), "two")
    assert list(project.blocks) == ["Unit"]
    head = head_edits.last_layer(project, catalog())
    assert head.sheet == "Unit" and project.graph.nodes[head.way[0]].name == "head"
    after = head_edits.replace_last(
        project, catalog(), 1
    )  # one number more is added to all
    assert (
        set(after.blocks) == {"Unit", "Unit2"}
        and after.blocks["Unit"] == project.blocks["Unit"]
    )
    model = make_module(
        analysed(head_edits.freeze_all_but_last(after, catalog())).source
    )
    assert (model.units.fc.out_features, model.head.fc.out_features) == (6, 1)
    assert [name for name, p in model.named_parameters() if p.requires_grad] == [
        "head.fc.weight",
        "head.fc.bias",
    ]


def test_a_last_layer_that_is_called_twice_is_refused_with_what_to_do() -> None:
    project = project_of(Two(True), (InputSpec((2, 6)),), "two")
    with pytest.raises(HeadError, match="more than once; unshare the last call"):
        head_edits.replace_last(project, catalog(), 3)


def test_dropping_the_last_layer_leads_its_wires_on() -> None:
    project = digits()
    head = head_edits.last_layer(project, catalog())
    dropped = head_edits.drop_last(project, catalog())
    assert head.node not in dropped.graph.nodes
    assert (
        analysed(dropped).runnable
        and len(dropped.graph.edges) == len(project.graph.edges) - 1
    )
    assert head_edits.last_layer(dropped, catalog()) != head


@pytest.mark.parametrize("size", [0, -1, True, 10**9])
def test_a_size_that_no_layer_has_is_refused(size) -> None:
    with pytest.raises(HeadError, match="number of outputs"):
        head_edits.replace_last(digits(), catalog(), size)


# --- The command


def test_the_command_prints_a_table_then_a_difference_then_stores_what_fits(
    tmp_path, capsys
) -> None:
    project = digits()
    path = tmp_path / "p.tape"
    file.write(project, path)
    path.write_bytes(path.read_bytes().replace(b'"tapedeck": 2', b'"tapedeck": 1'))
    before = path.read_bytes()
    torch.manual_seed(2)
    whole = make_module(analysed(project).source).state_dict()
    last = list(whole)[-1]
    torch.save({"state_dict": {**whole, last: torch.ones(3)}}, tmp_path / "w.pt")
    assert cli.run(["import", str(tmp_path / "w.pt")]) == 0
    assert f"{len(whole)} tensors" in capsys.readouterr().out
    given = ["import", str(tmp_path / "w.pt"), "--into", str(path)]
    assert cli.run(given) == 1
    shown = capsys.readouterr().out
    assert (
        f"! {last}" in shown and f"{len(whole) - 1} fit, 1 with another shape" in shown
    )
    assert cli.run([*given, "--strict"]) == 1 and path.read_bytes() == before
    assert "--partial" in capsys.readouterr().err
    assert cli.run([*given, "--partial"]) == 0
    assert (
        "saved as" in capsys.readouterr().out
        and (tmp_path / "p.v1.tape").read_bytes() == before
    )
    start = file.read(path).training.start
    assert Path(start.path).parent == tmp_path and start.name == "w.pt"
    assert set(load_file(start.path)) == set(whole) - {last}


def test_the_command_overwrites_nothing_that_was_saved_while_it_worked(
    tmp_path, capsys, monkeypatch
) -> None:
    """A window saves the project between the command's reading it and writing it."""
    project, path = digits(), tmp_path / "p.tape"
    file.write(project, path)
    torch.save(make_module(analysed(project).source).state_dict(), tmp_path / "w.pt")
    chosen, lock = start_weights.chosen, file_lock.mark_open(path)

    def meanwhile(*given):
        file.write(replace(project, name="theirs"), path)
        return chosen(*given)

    given = ["import", str(tmp_path / "w.pt"), "--into", str(path), "--strict"]
    monkeypatch.setattr(start_weights, "chosen", meanwhile)
    assert cli.run(given) == 2
    assert (
        "was changed on the disk" in capsys.readouterr().err
        and file.read(path).name == "theirs"
    )
    monkeypatch.undo()
    assert cli.run(given) == 0 and file.read(path).training.start is not None
    assert "is open in a window" in capsys.readouterr().err
    lock.remove()


def test_the_command_says_what_it_needs(tmp_path, capsys) -> None:
    assert (
        cli.run(["import", str(tmp_path / "no.pt")]) == 2
        and "no.pt" in capsys.readouterr().err
    )
    assert (
        cli.run(["import", "x.pt", "--strict"]) == 2
        and "--into" in capsys.readouterr().err
    )
    assert (
        cli.run(["import", "torchvision:alexnet"]) == 2
        and "-o P" in capsys.readouterr().err
    )
