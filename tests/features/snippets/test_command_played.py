"""`tapedeck autograd` of a function or a snippet plays its pass into a file, and says what the diagnostics find."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.features.snippets.values import Limits, Snippet, SnippetAnswer
from app.main import main
from tests.autograd.test_replay_html import Page
from tests.cli.test_autograd_asked import DIGITS, asked, nets  # noqa: F401
from tests.features.snippets.snippet_answers import ran


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would run in a process of its own runs in this one, which is quicker."""

    def run(snippet: Snippet, _limits: Limits) -> SnippetAnswer:
        return ran(
            snippet.text,
            name=snippet.name,
            function=snippet.function,
            inputs=snippet.inputs,
            play=snippet.play,
            findings=snippet.findings,
            checks=snippet.checks,
        )

    monkeypatch.setattr("app.features.snippets.process.run", run)


def test_findings_print_and_exit_by_what_they_find(nets: str, here, capsys) -> None:
    assert asked(f"{nets}:net", "--trust", "--input", "5x4", "--findings") == 0
    assert "Nothing found" in capsys.readouterr().out
    assert asked(f"{nets}:frozen", "--trust", "--input", "5x4", "--findings") == 1
    told = capsys.readouterr().out
    assert "info: 0.0: 0.0.weight is frozen" in told
    assert (
        "error: 1, line 14: In the backward pass, SqrtBackward0" in told
        and "first Inf" in told
    )


def test_a_function_is_played_also_where_it_frees_its_graph_itself(
    nets: str, here, tmp_path: Path, capsys
) -> None:
    page = tmp_path / "p.html"
    assert asked(f"{nets}:net", "--trust", "--input", "5x4", "--out", str(page)) == 0
    names = [step["parameters"] for step in Page(page.read_text()).data["steps"]]
    assert ["net.0.weight"] in names
    assert asked(f"{nets}:freed", "--trust", "--out", str(page)) == 0
    data = Page(page.read_text()).data
    assert (
        len(data["steps"]) == len(data["held"]) - 1 and data["steps"][0]["norm"] == 1.0
    )


def test_what_was_played_comes_back_from_the_other_process(
    nets: str, tmp_path: Path
) -> None:
    out = tmp_path / "p.json"
    words = ["--trust", "--input", "5x4", "--play", "--out", str(out)]
    assert asked(f"{nets}:net", *words) == 0
    told = json.loads(out.read_text())
    assert told["played"]["order"] == told["order"] and told["of"] == "net"


def test_what_the_net_has_not_is_said(nets: str, here, tmp_path: Path, capsys) -> None:
    out = ["--batch", "2", "--out", str(tmp_path / "g.json")]
    assert (
        asked(DIGITS, "--outputs", "3", *out) == 1
        and "fewer outputs" in capsys.readouterr().err
    )
    assert (
        asked(DIGITS, "--checkpoint", "nope", *out) == 1
        and "nope" in capsys.readouterr().err
    )
    assert (
        asked(f"{nets}:net", "--trust", "--amp", "bfloat16", *out) == 2
        and "--amp" in capsys.readouterr().err
    )


def test_findings_of_a_snippet_and_of_a_function_that_returns_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    body = "net = nn.Linear(4, 2)\nloss = net(torch.randn(3, 4)).detach().sum() + net.bias.sum()\n"
    (tmp_path / "lines.py").write_text(body)
    inside = "".join(f"    {line}\n" for line in [*body.splitlines(), "return loss"])
    (tmp_path / "steps.py").write_text(
        f"import torch\nfrom torch import nn\n\n\ndef step():\n{inside}"
    )
    monkeypatch.chdir(tmp_path)
    for source, line in (("lines.py", 2), ("steps.py:step", 7)):
        assert main(["autograd", source, "--findings", "--trust"]) == 1
        assert (
            f"The gradient path of net.weight is cut at line {line}"
            in capsys.readouterr().out
        )
