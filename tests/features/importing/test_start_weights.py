"""An imported net begins with the weights of its model, and `tapedeck import` stores those of a state_dict."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from safetensors.torch import load_file
from torch import nn

from app import cli
from app.builder.catalog.catalog import catalog
from app.features.importing.compute.pipeline import project_of
from app.project import file, file_lock
from app.project.weights import start_weights, state_dicts
from app.source.compiled import make_module
from app.sources.spec import InputSpec
from tests.project.test_start_weights import analysed, digits
from tests.support.needs import needs

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


@needs("weights")
def test_transfer_load_replace_the_last_layer_freeze_the_rest_and_train(
    tmp_path,
) -> None:
    """An imported net: the new layer alone moves, everything else keeps the bits that were loaded."""
    from app.features.weights import feature as head_edits

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


@needs("weights")
def test_only_the_last_of_two_instances_gets_another_layer_and_all_else_is_frozen() -> (
    None
):
    from app.features.weights import feature as head_edits

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


@needs("weights")
def test_a_last_layer_that_is_called_twice_is_refused_with_what_to_do() -> None:
    from app.features.weights import feature as head_edits

    project = project_of(Two(True), (InputSpec((2, 6)),), "two")
    with pytest.raises(
        head_edits.HeadError, match="more than once; unshare the last call"
    ):
        head_edits.replace_last(project, catalog(), 3)


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
