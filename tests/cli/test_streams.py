"""What a command does when its streams or its user give way: a sentence, an exit status, and no traceback."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.main import main
from app.project.file import read
from app.runs import store
from app.util import interrupts, user_frames
from app.util.resources import path as resource_path
from tests.slow import wrong_invocations
from tests.slow.material.wrong_invocation_cases import CASES
from tests.support.forked_python import run_forked, start_command
from tests.support.needs import needs

DIGITS = resource_path("examples", "digits.tape")
ROOT = Path(__file__).resolve().parents[2]

posix = pytest.mark.skipif(
    os.name != "posix", reason="signals, pipes and /dev/full are those of POSIX"
)


def command(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LC_", "LANG", "PYTHON"))
    }
    return subprocess.Popen(
        [sys.executable, "-m", "app.main", *arguments],
        cwd=ROOT,
        env={**plain, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
    )


@posix
def test_wrong_invocations_are_refused_with_one_sentence() -> None:
    """A few of `tests.slow.wrong_invocations`, by the same code: one of each kind of file and stream."""
    wanted = {
        "train on a device that is not here",
        "train into an empty name",
        "check of ''",
        "data of pipe.tape",
        "train with text.pt as weights, --resume",
        "train with pipe.pt as weights, --resume",
        "evaluate with pipe.safetensors as weights, --weights",
        "autograd of a pipe",
        "import of a pipe",
        "autograd into a pipe",
        "a name that is not UTF-8",
        "a name with a NUL",
        "--help into a full disk",
        "--help into a pipe that nobody reads",
    }
    names = {case.name for case in CASES}
    assert len(names) == len(CASES) > 100 and wanted <= names
    done = run_forked(Path(wrong_invocations.__file__), *sorted(wanted), cwd=ROOT)
    closing = "{0} wrong invocations: {0} refused with one sentence, 0 tracebacks, 0 hangs, 0 files left behind\n"
    assert done.stdout == closing.format(len(wanted)), done.stdout + done.stderr


@pytest.fixture
def named(tmp_path: Path) -> Path:
    """A project with a name that few streams can take."""
    text = json.loads(DIGITS.read_text("utf-8"))
    path = tmp_path / "named.tape"
    path.write_text(json.dumps({**text, "name": "数字"}), encoding="utf-8")
    return path


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_text_that_a_stream_cannot_take_is_printed_as_escapes(
    named: Path, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.TextIOWrapper(taken := io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(["check", str(named)]) == 0
    stream.flush()
    assert b"\\u6570\\u5b57: 12 nodes" in taken.getvalue()


@needs("runs")
def test_so_it_is_where_the_language_is_that_of_c(tmp_path: Path) -> None:
    store.changed(store.begin(tmp_path / "runs", read(DIGITS)), name="数字")
    with command(
        "runs", str(tmp_path), LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0"
    ) as done:
        out, err = done.communicate()
    assert done.returncode == 0 and not err
    assert "\\u6570\\u5b57 " in out


@posix
def test_a_stream_that_takes_nothing_is_said_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capfd
) -> None:
    """What `--help` is told of as a process of its own, in `tests.slow.wrong_invocations`."""
    reads, writes = os.pipe()
    os.close(reads)
    for stream, status, words in (
        (open("/dev/full", "w"), 2, "No space left"),
        (open(writes, "w"), 141, "was closed"),
    ):
        with stream, monkeypatch.context() as here:
            here.setattr(sys, "stdout", stream)
            assert main(["check", str(DIGITS)]) == status
        told = capfd.readouterr().err
        assert (
            told.count("\n") == 1
            and told.startswith("tapedeck: standard output cannot be written")
            and words in told
        )


@posix
def test_ctrl_c_while_something_is_imported_ends_at_once(tmp_path: Path) -> None:
    """As in the first second of a command: what is imported may catch the exception, so there is none."""
    (tmp_path / "catches.py").write_text(
        "import sys, time\nprint('importing', flush=True)\ntry:\n    time.sleep(60)\nexcept BaseException:\n    pass\n"
    )
    code = "from app.util import interrupts\nwith interrupts.interruptible():\n    import catches\nprint('went on')\n"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        assert started.stdout is not None and started.stdout.readline() == "importing\n"
        started.send_signal(signal.SIGINT)
        out, err = started.communicate()
    assert (started.returncode, out, err) == (130, "", "\ntapedeck: interrupted\n")


@posix
def test_ctrl_c_elsewhere_is_an_exception_and_sigint_that_is_ignored_stays_so() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interrupts.interruptible():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts.interruptible():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    other = threading.Thread(target=lambda: interrupts.interruptible().__enter__())
    other.start()
    other.join()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_command_that_is_interrupted_returns_130(
    monkeypatch: pytest.MonkeyPatch, capfd
) -> None:
    from app import cli

    def interrupted(_arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run", interrupted)
    assert (
        main(["check", str(DIGITS)]) == 130
        and capfd.readouterr().err == "\ntapedeck: interrupted\n"
    )


@posix
def test_a_run_whose_stdout_is_closed_keeps_what_was_learnt(tmp_path: Path) -> None:
    """Unbuffered: then nothing is left that could not be written either when the command ends."""
    train = [
        "train",
        str(DIGITS),
        "--out",
        str(tmp_path / "out"),
        "--epochs",
        "100000",
        "--json",
    ]
    run = start_command(tmp_path, *train, PYTHONUNBUFFERED="1")
    assert run.stdout is not None and run.stderr is not None
    run.stdout.readline()
    run.stdout.close()
    err = run.stderr.read().decode()
    assert run.wait() == 141 and err.count("\n") == 1 and "standard output" in err
    assert (tmp_path / "out" / "weights.safetensors").stat().st_size > 1000


def test_another_file_that_cannot_be_written_is_named(
    capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app import cli

    def full(_arguments: object) -> int:
        raise OSError(28, "No space left on device", "/somewhere/x")

    monkeypatch.setattr(cli, "_carried_out", full)
    monkeypatch.setattr(
        user_frames, "is_users", lambda _file: False
    )  # `full` stands for code of the program
    assert cli.run(["check"]) == 2
    assert (
        capsys.readouterr().err == "tapedeck: /somewhere/x: No space left on device\n"
    )


def test_the_traceback_of_a_failure_is_shown_where_it_is_asked_for(capsys) -> None:
    from app.cli.failures import describe_failure

    words = {
        "message": "Step 2 failed",
        "cure": "Take less.",
        "traceback": "a\n\x1b[31mb\n",
    }
    failed = SimpleNamespace(kind="error", **words)
    assert (
        describe_failure(failed, False) == "Step 2 failed. Take less."
        and not capsys.readouterr().err
    )
    assert describe_failure(failed, True) and capsys.readouterr().err == "a\n�[31mb\n"


@pytest.mark.usefixtures("no_pictures")
def test_a_checkpoint_that_does_not_belong_to_the_project_leaves_nothing_behind(
    tmp_path: Path, capsys
) -> None:
    """Neither a folder for the run that was refused, nor fewer checkpoints of the one that it is of."""
    from msgspec.structs import replace

    from app.project import file
    from app.runs import store

    first, project = tmp_path / "first", read(DIGITS)
    train = ["--epochs", "1", "--device", "cpu", "--save-every", "5"]
    assert main(["train", str(DIGITS), "--out", str(first), *train]) == 0
    (kept,) = store.listed(first / "runs")
    before = sorted(path.name for path in kept.checkpoints.iterdir())
    last = next(node for node in project.graph.nodes.values() if node.name == "fc1")
    other_net = replace(
        project, graph=project.graph.with_param(last.id, "out_features", 17)
    )
    earliest, path = str(kept.checkpoints / before[-2]), tmp_path / "net.tape"
    file.write(other_net, path)
    for other in ([str(path)], [str(DIGITS), "--set", "optimizer.name=Adagrad"]):
        for out in (first, tmp_path / "new"):
            capsys.readouterr()
            assert main(
                ["train", *other, "--out", str(out), *train, "--resume", earliest]
            ) in (1, 2)
            assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "new").exists() and len(store.listed(first / "runs")) == 1
    assert sorted(path.name for path in kept.checkpoints.iterdir()) == before
