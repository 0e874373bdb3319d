"""The commands as a person types them: what they print, what they leave, and how they refuse."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from app import cli
from app.main import main
from app.project import file
from app.util.resources import PATH_ENTRY
from app.util.resources import path as resource_path
from tests.support.forked_python import run_forked
from tests.support.needs import needs
from tests.support.script_here import run_script

DIGITS = resource_path("examples", "digits.tape")


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """The digits net whose last Linear has a wrong in_features."""
    project = file.read(DIGITS)
    last = next(node for node in project.graph.nodes.values() if node.name == "fc2")
    from msgspec.structs import replace

    path = tmp_path / "broken.tape"
    file.write(
        replace(project, graph=project.graph.with_param(last.id, "in_features", 7)),
        path,
    )
    return path


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_train_prints_events_and_leaves_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert (
        main(
            [
                "train",
                str(DIGITS),
                "--out",
                str(out),
                "--epochs",
                "2",
                "--device",
                "cpu",
                "--json",
            ]
        )
        == 0
    )
    events = lines(capsys.readouterr().out)
    steps = [event for event in events if event["event"] == "step"]
    epochs = [event for event in events if event["event"] == "epoch"]
    assert [event["epoch"] for event in epochs] == [1, 2]
    assert set(epochs[0]) == {
        "event",
        "epoch",
        "step",
        "train_loss",
        "train_accuracy",
        "val_loss",
        "val_accuracy",
    }
    assert set(steps[0]) == {"event", "epoch", "step", "loss"}
    assert [event["step"] for event in steps] == list(range(1, len(steps) + 1))
    left = {path.name for path in out.iterdir()}
    assert left >= {
        "model.py",
        "train.py",
        "weights.safetensors",
        "weights.pt",
        "metrics.csv",
        "network.png",
        "curves.png",
        "autograd.svg",
    }
    assert all((out / name).stat().st_size > 500 for name in left)


@pytest.mark.usefixtures("no_pictures")
def test_the_exported_script_prints_the_very_lines_of_the_command(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Bit for bit: the floats of the headless run and of the script are the same text."""
    out = tmp_path / "run"
    run = ["--json", "--device", "cpu", "--epochs", "2"]
    assert main(["train", str(DIGITS), "--out", str(out), *run]) == 0
    ours = capfd.readouterr().out
    assert run_script(out, *run) is None
    assert capfd.readouterr().out == ours


def test_check_says_what_is_wrong_and_how_to_mend_it(
    broken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(broken)]) == 1
    assert "fc2" in (text := capsys.readouterr().out) and "7" in text
    assert main(["check", str(broken), "--json"]) == 1
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert (
        problem["node"] == "fc2" and problem["severity"] == "error" and problem["cures"]
    )


def test_check_lists_the_cures_of_own_data_in_the_order_in_which_they_are_offered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"{i},{i % 3},{i / 7}\n" for i in range(20))
    (tmp_path / "t.csv").write_text(f"a,b,y\n{rows}")
    assert main(["check", str(DIGITS), "--on", str(tmp_path / "t.csv"), "--json"]) == 1
    problems = json.loads(capsys.readouterr().out)["problems"]
    shapes = next(p for p in problems if p["code"] == "input-does-not-match-data")
    assert shapes["where"] == "input" and "2 float32" in shapes["sentence"]
    assert shapes["cures"] == [
        "Set shape to 2",
        "Choose other data…",
        "Replace t.csv, which you chose, by random noise",
    ]
    for problem in problems:
        assert problem["code"] and "noise" not in "".join(problem["cures"][:1])


def test_check_of_a_sound_project(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(DIGITS)]) == 0
    assert "N×10" in capsys.readouterr().out


def test_a_broken_net_is_not_trained(
    broken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", str(broken), "--out", str(tmp_path / "run")]) == 1
    assert "fc2" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@needs("export")
def test_export_writes_what_runs_alone(tmp_path: Path) -> None:
    code, weights, script = (
        tmp_path / "net.py",
        tmp_path / "w.safetensors",
        tmp_path / "fit.py",
    )
    assert (
        main(
            [
                "export",
                str(DIGITS),
                "--code",
                str(code),
                "--weights",
                str(weights),
                "--script",
                str(script),
            ]
        )
        == 0
    )
    check = (
        "import torch, net, safetensors.torch as s\n"
        "m = net.Net(); m.load_state_dict(s.load_file('w.safetensors'), strict=True)\n"
        "print(tuple(m(torch.zeros(3, 1, 8, 8)).shape))"
    )
    (tmp_path / "check.py").write_text(check)
    done = run_forked(tmp_path / "check.py", cwd=tmp_path)
    assert done.stdout.strip() == "(3, 10)", done.stderr
    assert "from net import Net" in script.read_text()


@pytest.mark.parametrize("suffix", ["dot", "svg", "pdf", "png", "tex", "json"])
def test_autograd_writes_every_kind_of_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"graph.{suffix}"
    assert main(["autograd", str(DIGITS), "--out", str(path)]) == 0
    data = path.read_bytes()
    starts = {
        "dot": b"digraph",
        "svg": b"<?xml",
        "pdf": b"%PDF",
        "png": b"\x89PNG",
        "tex": b"% Drawn",
        "json": b"{",
    }
    assert starts[suffix] in data[:200]
    if suffix == "json":
        graph = json.loads(data)
        assert {"nodes", "edges"} <= set(graph)
        node = next(
            node for node in graph["nodes"] if node["name"] == "ConvolutionBackward0"
        )
        assert {"id", "name", "layer", "parameter", "saved"} <= set(node)
        assert set(node["saved"][0]) >= {"name", "shape", "dtype", "bytes"}
        assert {"conv1.weight", "fc2.bias"} <= {
            node["parameter"] for node in graph["nodes"]
        }


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "nowhere.tape", "--out", "x"],
        ["train", str(DIGITS)],
        ["train", str(DIGITS), "--out", "x", "--epochs", "0"],
        ["train", str(DIGITS), "--out", "x", "--device", "gpu"],
        ["check", str(DIGITS), "--surprise"],
        ["export", str(DIGITS)],
        ["export", str(DIGITS), "--weights", "w.txt"],
        ["autograd", str(DIGITS), "--out", "graph.gif"],
        ["nonsense", "and", "more"],
        ["--nonsense"],
    ],
)
def test_wrong_arguments_get_one_line_and_exit_2(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert len(told.err.strip().splitlines()) == 1 and told.err.startswith("tapedeck: ")
    assert told.out == "" and list(tmp_path.iterdir()) == []


def test_a_bad_file_is_named_with_the_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.tape"
    path.write_text(
        DIGITS.read_text().replace('"out_channels": 32', '"out_channels": "many"', 1)
    )
    assert main(["check", str(path)]) == 2
    error = capsys.readouterr().err
    assert "bad.tape" in error and "$.graph.nodes[" in error and "out_channels" in error


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert (
        main(["train", str(DIGITS), "--out", str(tmp_path / "file"), "--epochs", "1"])
        == 2
    )
    assert "cannot be written" in capsys.readouterr().err


def test_commands_without_pictures_do_without_qt(tmp_path: Path) -> None:
    """Neither does the fork server, of which the command is a copy."""
    (tmp_path / "probe.py").write_text(
        "import sys\nfrom app.main import main\ncode = main(['check', sys.argv[1]])\n"
        "qt = {name.split('.')[0] for name in sys.modules} & {'PySide6', 'pyqtgraph'}\n"
        "sys.exit(code or (str(qt) if qt else 0))"
    )
    done = run_forked(tmp_path / "probe.py", str(DIGITS))
    assert "N×10" in done.stdout and not done.stderr


@pytest.mark.parametrize("file", ["cli/count_command.py", "features/count/command.py"])
def test_a_command_is_found_by_the_name_of_its_module(
    file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def add(subparsers: Any) -> None:
        count = subparsers.add_parser("count")
        count.set_defaults(command=lambda _options: print("one"))

    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).touch()
    name = f"app.{file.removesuffix('.py').replace('/', '.')}"
    module = ModuleType(name)
    module.__dict__["add"] = add
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(cli, "PROGRAM", tmp_path)
    assert [*cli.commands()] == ["count"]
    assert main(["count"]) == 0 and capsys.readouterr().out == "one\n"


@needs("runs")
def test_help_and_the_list_of_runs_import_no_torch_and_a_command_no_other(
    tmp_path: Path,
) -> None:
    def imported(*arguments: str) -> set[str]:
        code = "import sys\nfrom app.main import main\ntry: main(sys.argv[1:])\nfinally: print(*sys.modules)"
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=PATH_ENTRY,
        )
        return set(done.stdout.splitlines()[-1].split())

    modules = {*cli.commands().values()}
    everything = imported("--help")
    assert modules <= everything and "torch" not in everything
    listing = imported("runs", str(tmp_path))
    assert modules & listing == {cli.commands()["runs"]} and "torch" not in listing


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            "check net.tape --out X",
            "there is no option --out; try tapedeck check --help",
        ),
        (
            "check net.tape --jsno",
            "there is no option --jsno, the nearest is --json; try",
        ),
        (
            "check a.tape b.tape",
            "b.tape is one argument too many: it takes SOURCE; try tapedeck check --help",
        ),
    ],
)
def test_an_option_that_a_command_does_not_have_is_named_with_the_nearest(
    asked, words, capsys
) -> None:
    assert main(asked.split()) == 2
    assert words in capsys.readouterr().err
