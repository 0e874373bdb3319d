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

from app.builder.analysis import analyse
from app.builder.diagnostics.problems import Problem
from app.builder.edits.edits import with_params
from app.export.train_script import training_script, write_start
from app.export.weights_choice import weights_to_export
from app.preflight import preflight
from app.project import custom_layers, file
from app.project.file import ProjectFileError, with_start
from app.project.project import Project
from app.project.weights import start_weights, state_dict_diff, state_dicts
from app.source.compiled import make_module
from app.training.config import StartWeights
from app.training.control import Control
from app.training.events import Failed, to_json
from app.training.loop import train
from app.training.setup.initial_weights import initial_weights
from app.training.setup.weights_header import StartError
from app.util.resources import path as resource_path
from tests.support.training_jobs import SMALL_NET, job


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
    (last,) = (k for k, node in project.graph.nodes.items() if node.name == "fc2")
    project = with_params(project, last, {"out_features": 7})
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
