"""`tapedeck autograd` of a person's file: a snippet, a function, a factory; nothing of it runs before it is trusted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.features.snippets.values import Limits, Snippet, SnippetAnswer
from app.main import main
from app.source.layer_files import LayerFile
from app.source.trust import TrustStore, default_file
from tests.features.snippets.snippet_answers import ran

SNIPPET = """w = torch.ones(3, requires_grad=True)
h = w.exp()
loss = h.sum()
loss.backward()
print("done")
"""
FUNCTIONS = """import torch
from torch import nn
print("ran")

def make():
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))

def broken():
    x = torch.ones(2, requires_grad=True).exp()
    return x + torch.ones(3)
"""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would run in a process of its own runs in this one, which is quicker."""

    def run(snippet: Snippet, _limits: Limits) -> SnippetAnswer:
        return ran(
            snippet.text,
            name=snippet.name,
            function=snippet.function,
            inputs=snippet.inputs,
        )

    monkeypatch.setattr("app.features.snippets.process.run", run)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "notes.py").write_text(SNIPPET)
    (tmp_path / "nets.py").write_text(FUNCTIONS)
    return tmp_path


def test_a_file_that_nobody_trusts_does_not_run(folder, capsys) -> None:
    assert (
        main(["autograd", str(folder / "nets.py:make"), "--out", str(folder / "g.dot")])
        == 1
    )
    told = capsys.readouterr().err
    assert (
        "was not run" in told and "--trust" in told and "ran" not in told.splitlines()
    )
    assert not (folder / "g.dot").exists()


def test_a_snippet_becomes_data_with_its_tensors(folder, capsys) -> None:
    out = folder / "g.json"
    assert (
        main(["autograd", str(folder / "notes.py"), "--trust", "--out", str(out)]) == 0
    )
    told = capsys.readouterr()
    assert told.out.strip() == str(out) and told.err == "done\n", (
        "what it prints does not mix with the answer"
    )
    graph = json.loads(out.read_text())
    assert (graph["of"], graph["freed_at"]) == ("loss", 4) and graph["held_bytes"] == 12
    assert {tensor["name"]: tensor["grad"] for tensor in graph["tensors"]}[
        "w"
    ].startswith("[2.7183")
    assert {node["line"] for node in graph["nodes"]} == {2, 3}


def test_one_trusted_in_the_window_needs_no_word_and_a_tensor_can_be_chosen(
    folder, here, capsys
) -> None:
    file = folder / "notes.py"
    TrustStore(default_file()).trust(LayerFile.from_text("notes", SNIPPET, str(file)))
    out = folder / "g.dot"
    assert main(["autograd", str(file), "--of", "h", "--out", str(out)]) == 0
    assert "ExpBackward0" in out.read_text() and "SumBackward0" not in out.read_text()
    capsys.readouterr()
    assert main(["autograd", str(file), "--of", "w", "--out", str(out)]) == 1
    assert (
        "no tensor called w has a graph; there are loss, h" in capsys.readouterr().err
    )


def test_a_factory_is_called_with_inputs_and_drawn(folder, here, capsys) -> None:
    out = folder / "g.svg"
    arguments = [
        "autograd",
        str(folder / "nets.py:make"),
        "--trust",
        "--input",
        "5x4",
        "--out",
        str(out),
    ]
    assert main(arguments) == 0
    assert "AddmmBackward0" in out.read_text() and "make.2.weight" in out.read_text()
    assert "ran" in capsys.readouterr().err


def test_an_error_is_told_with_its_line(folder, here, capsys) -> None:
    out = folder / "g.dot"
    assert (
        main(["autograd", str(folder / "nets.py:broken"), "--trust", "--out", str(out)])
        == 1
    )
    assert "RuntimeError in line 10" in capsys.readouterr().err
    assert "ExpBackward0" in out.read_text(), (
        "what was made before it is written all the same"
    )


def test_a_function_that_takes_something_asks_for_it(folder, here, capsys) -> None:
    (folder / "of.py").write_text("def of(x):\n    return x.requires_grad_().sin()\n")
    arguments = [
        "autograd",
        str(folder / "of.py:of"),
        "--trust",
        "--out",
        str(folder / "g.dot"),
    ]
    assert main(arguments) == 1 and "--input 1x3x32x32" in capsys.readouterr().err
    assert (
        main([*arguments, "--input", "2x2"]) == 0
        and "SinBackward0" in (folder / "g.dot").read_text()
    )


def test_wrong_arguments_get_exit_2(folder, capsys) -> None:
    out = str(folder / "g.dot")
    assert main(["autograd", str(folder / "gone.py"), "--trust", "--out", out]) == 2
    assert (
        main(
            [
                "autograd",
                str(folder / "notes.py"),
                "--trust",
                "--input",
                "4by4",
                "--out",
                out,
            ]
        )
        == 2
    )
    assert (
        main(
            [
                "autograd",
                str(folder / "notes.py"),
                "--trust",
                "--timeout",
                "0",
                "--out",
                out,
            ]
        )
        == 2
    )
