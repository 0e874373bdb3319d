"""What a command says of a person's own code that raises: a sentence with file and line, and the lines of that file."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from app.main import main
from app.project import custom_layers, file
from app.project.project import Project
from app.util.resources import path as resource_path
from tests.support.builder_nets import net

LAYERS = """import torch
from torch import nn


class Late(nn.Module):
    def forward(self, x):
        if not x.is_meta and len(x) > 6:
            return self.look_up(x)
        return x

    def look_up(self, x):
        return {}["no such key"]
"""
PLACE = "KeyError: 'no such key' (line 12 of mine.py)."


pytestmark = pytest.mark.usefixtures("forked_trials")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A net whose first activation is a layer that raises once a batch is large."""
    (tmp_path / "mine.py").write_text(LAYERS, encoding="utf-8")
    project = file.read(resource_path("examples", "digits.tape"))
    nodes, edges = project.graph.nodes, project.graph.edges
    relu = next(node for node in nodes.values() if node.name == "relu1")
    graph = replace(
        project.graph,
        nodes=nodes.set(relu.id, replace(relu, op="custom.mine:Late")),
        edges=type(edges)(
            replace(edge, port="x") if edge.target == relu.id else edge
            for edge in edges
        ),
    )
    file.write(
        replace(project, graph=graph, layer_files=(str(tmp_path / "mine.py"),)),
        tmp_path / "own.tape",
    )
    return tmp_path / "own.tape"


def test_a_layer_that_raises_is_told_with_its_line_and_no_other_code(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(path.parent)
    told_of_the_layer(
        ["train", str(path), "--out", "out"],
        f"The first step failed with {PLACE}",
        capsys,
    )


def told_of_the_layer(
    command: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--trust"]) == 1
    told = capsys.readouterr().err.splitlines()
    assert told[-1].startswith(f"tapedeck: {words}")
    files = [line for line in told if line.startswith('  File "')]
    assert files[-1] == '  File "mine.py", line 12, in look_up' and len(files) == 3
    assert not any("site-packages" in line or "app/" in line for line in files)
    assert main([*command, "--trust", "--traceback"]) == 1
    assert (
        sum(
            line.startswith('  File "') for line in capsys.readouterr().err.splitlines()
        )
        > 3
    )


def test_a_capture_and_its_findings_name_the_line(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["autograd", str(path), "--trust", "--findings"]) == 1
    assert "KeyError at line 12 of mine.py: 'no such key'" in capsys.readouterr().out
    assert (
        main(
            ["autograd", str(path), "--trust", "--out", str(path.with_suffix(".json"))]
        )
        == 1
    )
    assert "KeyError at line 12 of mine.py: 'no such key'" in capsys.readouterr().err


def test_an_error_of_the_program_itself_is_one_line_and_a_traceback_where_it_is_asked_for(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(custom_layers, "admit", None)
    assert main(["check", str(path)]) == 1
    assert (
        capsys.readouterr().err
        == "tapedeck: TypeError: 'NoneType' object is not callable; --traceback shows where\n"
    )
    assert main(["check", str(path), "--traceback"]) == 1
    assert "app/cli/__init__.py" in capsys.readouterr().err


def test_one_problem_is_one_line_and_several_are_listed_above(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = file.read(resource_path("examples", "digits.tape"))
    path = tmp_path / "p.tape"

    graph = project.graph
    fc1 = next(node for node in graph.nodes.values() if node.name == "fc1")
    wrong = replace(
        graph,
        nodes=graph.nodes.set(
            fc1.id, replace(fc1, params=fc1.params.set("in_features", 7))
        ),
    )
    file.write(replace(project, graph=wrong), path)
    assert main(["autograd", str(path), "--findings"]) == 1
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1 and told[0].startswith(
        "tapedeck: digits cannot run. fc1: Linear expects 7 features, gets"
    )
    assert main(["check", str(path)]) == 1
    assert capsys.readouterr().out.endswith("parameters, 1 error\n")
    rows = [
        ("input", "x", {"shape": (4,)}),
        *(("nn.Linear", name, {"in_features": 7}) for name in "ab"),
        ("operator.add", "sum", {}),
        ("output", "out", {}),
    ]
    two = net(
        rows,
        [("x", "a"), ("x", "b"), ("a", "sum"), ("b", "sum", "other"), ("sum", "out")],
    )
    file.write(Project(name="digits", graph=two), path)
    assert main(["autograd", str(path), "--findings"]) == 1
    *listed, last = capsys.readouterr().err.splitlines()
    assert (
        last == f"tapedeck: digits cannot run: it has the {len(listed)} problems above"
        and len(listed) == 2
    )
