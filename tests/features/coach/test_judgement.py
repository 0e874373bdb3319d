"""What the coach says of some ill and healthy runs; `tests.slow.coach` makes 80."""

import json
from pathlib import Path

import pytest

from app.project import file
from tests.slow import coach

SHORT = (
    "rate: moons, SGD 100",
    "leak: a fifth twice",
    "dead: digits, bias -20",
    "class: 5 %, tanh",
    "labels: clouds",
    "loss: softmax, NLLLoss",
    "overfitting: few values",
    "iris",
    "one class rarer",
)
CASES = {case.name: case for case in (*coach.ILL, *coach.HEALTHY)}


@pytest.mark.parametrize("name", SHORT)
def test_an_ill_run_is_named_and_a_healthy_one_is_not_touched(name, tmp_path):
    kind, sentence = coach.verdict_on(CASES[name], tmp_path)
    assert kind == CASES[name].kind, sentence


def test_there_are_forty_of_each():
    assert (len(coach.ILL), len(coach.HEALTHY)) == (40, 40) and len(CASES) == 80


def train(case, folder: Path, capsys, *options: str) -> list[str]:
    from app.cli import run as cli

    project = folder / "net.tape"
    file.write(coach.project_of(case, folder), project)
    cli(["train", str(project), "--out", str(folder / "out"), *options])
    return capsys.readouterr().out.splitlines()


def test_the_remark_is_the_last_line_of_a_run_and_an_event_of_its_own(tmp_path, capsys):
    case = CASES["leak: a fifth twice"]
    sentence = train(case, tmp_path, capsys)[-1]
    assert "validation samples are in the training part too" in sentence
    lines = [json.loads(line) for line in train(case, tmp_path, capsys, "--json")]
    assert [line["event"] for line in lines[-2:]] == ["finished", "remark"]
    assert (lines[-1]["kind"], lines[-1]["sentence"]) == ("leak", sentence)


def test_a_healthy_run_ends_without_a_remark(tmp_path, capsys):
    lines = train(CASES["iris"], tmp_path, capsys, "--json")
    assert json.loads(lines[-1])["event"] == "finished"
