"""The process of a snippet: its limits, Stop, and ends that nobody planned."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from app.features.snippets import process
from app.features.snippets.process import run
from app.features.snippets.values import Limits, Snippet, ready
from tests.engine.test_child import alive, wait_for
from tests.support.own_code import trust

LONG = Limits(seconds=100.0)


def test_a_snippet_comes_back_from_its_process_with_all_that_it_left(
    tmp_path: Path,
) -> None:
    (tmp_path / "beside.py").write_text("SIZE = 2\n")
    text = "from beside import SIZE; x = torch.ones(SIZE, requires_grad=True)\ny = x.exp()\nprint('here')\ny.sum()"
    (tmp_path / "s.py").write_text(text)
    trust("s.py:s", tmp_path)
    answer = run(Snippet(text, "s.py", folder=str(tmp_path)), LONG)
    assert (answer.ended, answer.error) == ("done", None)
    assert answer.output == "here\ntensor(5.4366, grad_fn=<SumBackward0>)\n"
    assert [graph.name for graph in answer.graphs] == ["y.sum()", "y"]
    assert (
        answer.graph.tape.text.startswith("from beside import SIZE")
        and answer.seconds > 0
    )


def test_stop_ends_it_wherever_it_is_and_keeps_what_it_printed() -> None:
    told: list[str] = []
    text = "print('on its way')\nwhile True:\n    pass"
    answer = run(
        Snippet(text), LONG, cancelled=lambda: "\n" in "".join(told), tell=told.append
    )
    assert (answer.ended, answer.words, answer.output) == (
        "stopped",
        "Stopped.",
        "on its way\n",
    )


def test_one_that_takes_too_long_is_stopped_and_said_to_be() -> None:
    answer = run(Snippet("while True:\n    pass"), Limits(seconds=0.3))
    assert answer.ended == "time" and "0.3 s" in answer.words


@pytest.mark.skipif(sys.platform != "linux", reason="memory is watched on Linux")
def test_one_that_wants_too_much_memory_is_told_the_line() -> None:
    answer = run(
        Snippet("x = torch.ones(3)\ny = torch.zeros(1 << 31)"), Limits(100.0, 1 << 30)
    )
    assert answer.ended == "memory" and "1.00 GiB" in answer.words
    assert answer.error.line == 2 and [tensor.name for tensor in answer.tensors] == [
        "x"
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is watched on Linux")
def test_one_that_lifts_its_limit_is_ended_from_outside() -> None:
    text = "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))\nx = bytearray(600 << 20)\nwhile 1: pass"
    answer = run(Snippet(text), Limits(100.0, 256 << 20))
    assert answer.ended == "memory" and not answer.tensors


def test_of_much_output_the_beginning_and_the_end_are_kept() -> None:
    answer = run(
        Snippet(
            "for i in range(100_000):\n    print(f'{i:08} {1:060}')\nprint('the end')"
        ),
        LONG,
    )
    lines = answer.output.splitlines()
    assert (
        lines[0].startswith("00000000 ")
        and lines[-2].startswith("00099999 ")
        and lines[-1] == "the end"
    )
    assert len(answer.output) < 210_000 and all(
        len(line) == 69 for line in lines if line.startswith("0000")
    )
    assert [line for line in lines if "left out" in line] == ["… 6.49 MiB left out"]


def test_a_crash_of_native_code_is_said_and_hurts_nobody() -> None:
    answer = run(
        Snippet("import os\nprint('last words', flush=True)\nos.abort()"), LONG
    )
    assert (
        answer.ended == "died" and "SIGABRT" in answer.words or sys.platform == "win32"
    )
    assert answer.output.startswith("last words")


@pytest.mark.skipif(sys.platform == "win32", reason="fork")
def test_what_a_snippet_started_does_not_hold_its_answer_up() -> None:
    text = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(8)\n    os._exit(0)\nx = torch.ones(2)"
    answer = run(Snippet(text), LONG)
    assert answer.ended == "done" and answer.tensor("x").shape == (2,)


def test_every_ready_snippet_has_a_title_and_a_sentence() -> None:
    for one in ready():
        assert one.title and one.words.endswith((".", ")")) and len(one.words) < 330, (
            one.key
        )
        assert not one.text.startswith(("\n", '"')) and one.text.endswith("\n")
        assert max(map(len, one.text.splitlines())) <= 96, one.key
    assert len({one.key for one in ready()}) == len(ready()) >= 20


def test_it_runs_on_the_main_thread_where_python_lets_it_handle_signals() -> None:
    text = "import signal\nseen = []\nsignal.signal(signal.SIGTERM, lambda *_: seen.append(1))\n"
    answer = run(
        Snippet(
            text
            + "import os; os.kill(os.getpid(), signal.SIGTERM)\nx = torch.tensor(len(seen))"
        ),
        LONG,
    )
    assert answer.error is None and answer.tensor("x").values == "1"


@pytest.mark.skipif(sys.platform == "win32", reason="fork")
def test_stop_ends_what_it_has_started_too(tmp_path: Path) -> None:
    told: list[str] = []
    text = "import os, time\npid = os.fork()\nif pid:\n    print(pid)\ntime.sleep(600)"
    answer = run(Snippet(text), LONG, cancelled=lambda: bool(told), tell=told.append)
    assert answer.ended == "stopped"
    wait_for(
        lambda: not alive(int(answer.output))
    )  # it was killed; the kernel takes a moment


def test_an_answer_that_is_too_large_is_said_and_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "MOST", 2_000)
    answer = run(
        Snippet(
            "x = torch.ones(3)\n" * 3 + "\n".join(f"x{i} = x + {i}" for i in range(40))
        ),
        LONG,
    )
    assert answer.ended == "died" and not answer.tensors and answer.words.endswith(".")


def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    answer = run(Snippet("x = 1", folder=str(tmp_path / "gone")), LONG)
    assert answer.ended == "died" and "gone" in answer.words
