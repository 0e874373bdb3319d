"""60 hostile files of frames, each watched in a real window: `python -m tests.slow.hostile_frames`.

None may have a byte of another file read or sent, take much memory, hang, or leave the window without a sentence.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tapedeck.commands import CommandSocket

LIMIT = 20.0  # seconds for one file
MOST_MEMORY = 96 << 20  # bytes that one file may add to the process at its peak
BIG = "1" + 400 * "0"
MARKUP = "<img src='file:///etc/passwd'><b>bold</b><script>x</script>"
CONTROLS = "a\x1b[2Jb\x07c\u202ed\u0000e\r\nf"
SCRIPT = {"event": "script", "argv": ["train.py"], "pid": 1, "rank": 0}
STARTED = {"event": "started", "device": "cpu", "parameters": 5}
STEP = {"event": "step", "epoch": 1, "step": 1, "loss": 0.5, "seconds": 0.1}
DONE = {"event": "finished", "reason": "done", "epoch": 1, "steps": 1}
LAYERS = {"event": "layers", "layers": ["a", "b"]}
EPOCH = {
    "event": "epoch",
    "epoch": 1,
    "step": 1,
    "train_loss": 1,
    "train_accuracy": None,
    "val_loss": None,
    "val_accuracy": None,
}


class Neighbours(NamedTuple):
    """What lies beside a file of frames and is none of its business."""

    key: Path
    agent: Path
    port: int


_listening: list[CommandSocket] = []  # of scripts that are there
Write = Callable[[Path, Neighbours], Path]


class Case(NamedTuple):
    """A file of frames: `write` puts it into a folder; `says` is in the sentence that the window shows."""

    name: str
    write: Write
    says: str


def raw(*lines: object) -> bytes:
    """Return lines of a file; what is no text or bytes is written as JSON."""
    texts = [
        line if isinstance(line, str | bytes) else json.dumps(line) for line in lines
    ]
    return b"".join(
        (text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
        + b"\n"
        for text in texts
    )


def holds(*lines: object) -> Write:
    """Return what writes a file with these lines."""

    def write(folder: Path, _neighbours: Neighbours) -> Path:
        path = folder / "frames.jsonl"
        path.write_bytes(raw(*lines))
        path.chmod(0o600)
        return path

    return write


def names(fields: Callable[[Neighbours], dict[str, object]]) -> Write:
    """Return what writes the frames of a script whose first one has further fields."""

    def write(folder: Path, neighbours: Neighbours) -> Path:
        return holds(SCRIPT | fields(neighbours), STARTED, STEP, DONE)(
            folder, neighbours
        )

    return write


def beside(make: Callable[[Path, Neighbours], object], **fields: object) -> Write:
    """Return what writes the frames of a script with something else in the folder."""

    def write(folder: Path, neighbours: Neighbours) -> Path:
        make(folder, neighbours)
        return holds(SCRIPT | fields, STARTED, STEP)(folder, neighbours)

    return write


def is_at(make: Callable[[Path, Neighbours], object]) -> Write:
    """Return what puts something else in the place of the file."""

    def write(folder: Path, neighbours: Neighbours) -> Path:
        path = folder / "frames.jsonl"
        make(path, neighbours)
        return path

    return write


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def _port_file(folder: Path, neighbours: Neighbours) -> None:
    path = folder / "commands.port"
    path.write_text(f"{neighbours.port:05} {64 * 'a'}")
    path.chmod(0o600)


def _rank(
    make: Callable[[Path, Neighbours], object],
) -> Callable[[Path, Neighbours], None]:
    """Return what puts something in the place of another rank's frames, of a script that listens."""

    def do(folder: Path, neighbours: Neighbours) -> None:
        _listening.append(CommandSocket(folder))
        (folder / "rank-1").mkdir()
        make(folder / "rank-1" / "frames.jsonl", neighbours)

    return do


def _bound(path: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as made:
        made.bind(str(path))


GONE, LEFT_OUT, WATCHED, NONE = (
    "could not say how it ended",
    "left out",
    "cannot be watched",
    "No line of",
)
BROKEN = "is not a line of a run"
DONE_SAID = "Done after"

CASES = (
    # addresses
    Case(
        "a private key as secret of a port",
        names(lambda n: {"port": n.port, "secret": str(n.key)}),
        DONE_SAID,
    ),
    Case(
        "/dev/zero as secret",
        names(lambda n: {"port": n.port, "secret": "/dev/zero"}),
        DONE_SAID,
    ),
    Case(
        "a pipe as secret",
        beside(lambda f, _: os.mkfifo(f / "pipe"), port=1, secret="pipe"),
        "A script trains",
    ),
    Case(
        "the socket of another program",
        names(lambda n: {"socket": str(n.agent)}),
        DONE_SAID,
    ),
    Case(
        "a socket by a relative path",
        names(lambda _: {"socket": "../agent.sock"}),
        DONE_SAID,
    ),
    Case(
        "a socket by 5,000 characters",
        names(lambda _: {"socket": 5000 * "x"}),
        DONE_SAID,
    ),
    Case(
        "NUL in addresses",
        names(lambda n: {"socket": "a\0b", "secret": "\0", "port": n.port}),
        DONE_SAID,
    ),
    Case(
        "a link in place of the socket",
        beside(lambda f, n: (f / "commands.sock").symlink_to(n.agent), commands=True),
        GONE,
    ),
    Case(
        "a file in place of the socket",
        beside(lambda f, _: (f / "commands.sock").write_text("x"), commands=True),
        GONE,
    ),
    Case(
        "a pipe in place of the socket",
        beside(lambda f, _: os.mkfifo(f / "commands.sock"), commands=True),
        GONE,
    ),
    Case(
        "a socket that nobody listens on",
        beside(lambda f, _: _bound(f / "commands.sock"), commands=True),
        GONE,
    ),
    Case("a file that names a port", beside(_port_file, commands=True), GONE),
    Case(
        "the port file is a link to a key",
        beside(lambda f, n: (f / "commands.port").symlink_to(n.key), commands=True),
        GONE,
    ),
    Case(
        "the frames of another rank are a link to a key",
        beside(
            _rank(lambda p, n: p.symlink_to(n.key)), job="j", world=2, commands=True
        ),
        "A script trains",
    ),
    Case(
        "the frames of another rank are a pipe",
        beside(_rank(lambda p, _: os.mkfifo(p)), job="j", world=2, commands=True),
        "A script trains",
    ),
    Case("the process of a parent", names(lambda _: {"pid": os.getppid()}), DONE_SAID),
    # types of the first frame
    Case("10^400 ranks", names(lambda _: {"world": 10**400}), BROKEN),
    Case("a negative rank", names(lambda _: {"rank": -1}), BROKEN),
    Case("arguments that are a number", names(lambda _: {"argv": 7}), BROKEN),
    Case("a job that is an object", names(lambda _: {"job": {"a": 1}}), BROKEN),
    # types of "started"
    Case(
        "no samples in a batch",
        holds(STARTED | {"batch_size": 0, "train_count": 10}),
        BROKEN,
    ),
    Case("10^400 epochs", holds(STARTED | {"epochs": 10**400}), BROKEN),
    Case("a negative number of samples", holds(STARTED | {"train_count": -5}), BROKEN),
    Case("parameters that are a text", holds(STARTED | {"parameters": "many"}), BROKEN),
    Case("a device that is a list", holds(STARTED | {"device": ["cpu"]}), BROKEN),
    Case("a start that lacks everything", holds({"event": "started"}), BROKEN),
    Case(
        "10^15 epochs of 10^15 samples",
        holds(
            STARTED | {"epochs": 10**15, "batch_size": 1, "train_count": 10**15},
            STEP,
            DONE,
        ),
        DONE_SAID,
    ),
    # types of what follows
    Case(
        "a loss of 10^400",
        holds(STARTED, '{"event": "step", "epoch": 1, "step": 1, "loss": ' + BIG + "}"),
        LEFT_OUT,
    ),
    Case(
        "a loss of 1e400",
        holds(STARTED, '{"event": "step", "epoch": 1, "step": 1, "loss": 1e400}'),
        LEFT_OUT,
    ),
    Case("a loss that is a list", holds(STARTED, STEP | {"loss": [1]}), LEFT_OUT),
    Case(
        "a loss of NaN",
        holds(STARTED, '{"event": "step", "epoch": 1, "step": 1, "loss": NaN}', DONE),
        DONE_SAID,
    ),
    Case("losses as large as floats", holds(STARTED, STEP | {"loss": 1e308}), LEFT_OUT),
    Case(
        "step 10^400",
        holds(STARTED, '{"event": "step", "epoch": 1, "loss": 1, "step": ' + BIG + "}"),
        LEFT_OUT,
    ),
    Case("a negative step", holds(STARTED, STEP | {"step": -3}), LEFT_OUT),
    Case(
        "steps backwards",
        holds(STARTED, STEP | {"step": 9}, STEP | {"step": 4}),
        LEFT_OUT,
    ),
    Case("a step before the start", holds(STEP, STARTED), BROKEN),
    Case(
        "step 2^53",
        holds(STARTED, STEP | {"step": 2**53}, STEP, DONE | {"steps": 2**53}),
        LEFT_OUT,
    ),
    Case("negative seconds", holds(STARTED, STEP | {"seconds": -1}), LEFT_OUT),
    Case(
        "norms that are texts",
        holds(STARTED, LAYERS, {"event": "norms", "step": 1, "norms": ["x", "y"]}),
        LEFT_OUT,
    ),
    Case(
        "two layers of one name",
        holds(STARTED, {"event": "layers", "layers": ["a", "a"]}),
        LEFT_OUT,
    ),
    Case(
        "more rates than groups",
        holds(STARTED, {"event": "rates", "step": 1, "groups": ["a"], "rates": [1, 2]}),
        LEFT_OUT,
    ),
    Case(
        "memory of -1 bytes",
        holds(
            STARTED,
            {
                "event": "memory",
                "step": 1,
                "seconds": 1,
                "scope": "process",
                "allocated": -1,
                "reserved": None,
                "peak": None,
                "resident": 1,
            },
        ),
        LEFT_OUT,
    ),
    Case(
        "a loss of an output that is 10^400",
        holds(
            STARTED, '{"event": "losses", "epoch": 1, "step": 1, "loss_a": ' + BIG + "}"
        ),
        LEFT_OUT,
    ),
    Case(
        "a metric that is an object",
        holds(STARTED, EPOCH | {"val_f1": {"a": 1}}),
        LEFT_OUT,
    ),
    Case(
        "5,000 metrics",
        holds(STARTED, EPOCH | {f"val_{n}": 1 for n in range(5000)}),
        LEFT_OUT,
    ),
    # texts
    Case(
        "markup in every text",
        holds(
            STARTED | {"device": MARKUP},
            {"event": "said", "step": 1, "message": MARKUP},
            STEP,
            DONE | {"note": MARKUP},
        ),
        DONE_SAID,
    ),
    Case(
        "control characters in every text",
        holds(
            STARTED | {"device": CONTROLS},
            {"event": "said", "step": 1, "message": CONTROLS},
            STEP,
            DONE | {"note": CONTROLS},
        ),
        DONE_SAID,
    ),
    Case(
        "a message of a million characters",
        holds(STARTED, {"event": "said", "step": 1, "message": 900_000 * "x"}),
        LEFT_OUT,
    ),
    Case(
        "half a surrogate pair",
        holds(STARTED, '{"event": "said", "step": 1, "message": "\\ud800"}', DONE),
        DONE_SAID,
    ),
    # forms of the file
    Case(
        "100,000 levels of lists",
        holds(STARTED, '{"event": "step", "x": ' + 100_000 * "[" + "}", DONE),
        DONE_SAID,
    ),
    Case(
        "a line of 3 MB",
        holds(
            STARTED,
            b'{"event": "said", "step": 1, "message": "' + b"x" * 3_000_000,
            DONE,
        ),
        DONE_SAID,
    ),
    Case(
        "UTF-16",
        is_at(lambda p, _: p.write_bytes(raw(STARTED, STEP).decode().encode("utf-16"))),
        NONE,
    ),
    Case(
        "Latin-1 amid it",
        holds(STARTED, b'{"event": "said", "step": 1, "message": "gr\xe4"}', DONE),
        DONE_SAID,
    ),
    Case(
        "only prints of a script", holds("hello", "[1]", "{}", '{"event": 3}', ""), NONE
    ),
    Case("a line of a terabyte", is_at(lambda p, _: _sparse(p)), WATCHED),
    Case("a link to a key", is_at(lambda p, n: p.symlink_to(n.key)), WATCHED),
    Case("a link to /dev/zero", is_at(lambda p, _: p.symlink_to("/dev/zero")), WATCHED),
    Case("a pipe", is_at(lambda p, _: os.mkfifo(p)), WATCHED),
    Case("a folder", is_at(lambda p, _: p.mkdir()), WATCHED),
)


class Outside:
    """What a hostile file is after: a key, an agent's socket and a port, and what reached them."""

    def __init__(self, folder: Path) -> None:
        key = folder / "id_rsa"
        key.write_text("PRIVATE KEY\n" * 100)
        key.chmod(0o600)
        self._watching = True
        self._agent, self._tcp = socket.socket(socket.AF_UNIX), socket.socket()
        self._agent.bind(str(folder / "agent.sock"))
        self._tcp.bind(("127.0.0.1", 0))
        self.reached: list[str] = []
        for listener in (self._agent, self._tcp):
            listener.listen()
            threading.Thread(target=self._listen, args=(listener,), daemon=True).start()
        self.neighbours = Neighbours(
            key, folder / "agent.sock", self._tcp.getsockname()[1]
        )
        self._forbidden = {str(key), "/dev/zero", str(folder / "agent.sock")}
        _after.append(self)

    def _listen(self, listener: socket.socket) -> None:
        while self._watching:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                self.reached.append(f"sent {len(connection.recv(4096)):,} bytes")

    def note_open(self, path: str) -> None:
        """Note that a file is opened, if it is none of a script's business."""
        if os.path.realpath(path) in self._forbidden:
            self.reached.append(f"opened {path}")

    def close(self) -> None:
        """Stop listening."""
        self._watching = False
        _after.remove(self)
        while _listening:
            _listening.pop().close()
        for listener in (self._agent, self._tcp):
            listener.close()


_after: list[Outside] = []


def _audit(event: str, given: tuple[object, ...]) -> None:
    for outside in _after if event == "open" else ():
        outside.note_open(str(given[0]))


sys.addaudithook(_audit)  # it cannot be removed


def peak() -> int:
    """Return the peak resident memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def main() -> int:
    """Watch every file in one window; return 1 on a fault."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    with tempfile.TemporaryDirectory() as home:
        for name in ("CONFIG", "DATA", "CACHE", "STATE"):
            os.environ[f"XDG_{name}_HOME"] = str(Path(home, name))
        return _watch_all(Path(home))


def _watch_all(home: Path) -> int:
    import faulthandler

    from PySide6.QtWidgets import QApplication

    from app.views.ui import theme
    from tests.support import windows

    faulthandler.dump_traceback_later(LIMIT * len(CASES), exit=True)
    application = QApplication([])
    theme.apply(application, "dark")
    outside, faults = Outside(home), 0
    with windows.shown(application, "hostile frames") as window:
        window.furnish()
        errors: list[str] = []
        sys.excepthook = lambda kind, error, _trace: errors.append(
            f"{kind.__name__}: {error}"
        )
        threading.excepthook = lambda given: errors.append(
            f"{given.exc_type.__name__}: {given.exc_value}"
        )
        for number, case in enumerate(CASES, 1):
            folder = home / str(number)
            folder.mkdir(mode=0o700)
            before = peak()
            sentence, hung = watched(
                window, case.write(folder, outside.neighbours), case.says
            )
            grown = peak() - before
            wrong = [*errors, *outside.reached, *["hangs"] * hung]
            wrong += [f"{grown >> 20} MiB"] if grown > MOST_MEMORY else []
            wrong += (
                [f"no sentence with {case.says!r}"] if case.says not in sentence else []
            )
            wrong += (
                ["something went wrong"] if "Something went wrong" in sentence else []
            )
            errors.clear()
            outside.reached.clear()
            faults += bool(wrong)
            print(
                f"{number:2}  {case.name:48} {grown >> 20:4} MiB  {'; '.join(wrong) or sentence[:100]!r}",
                flush=True,
            )
    outside.close()
    print(f"{len(CASES)} files, {faults} with a fault")
    return 1 if faults else 0


def watched(window: object, path: Path, says: str) -> tuple[str, bool]:
    """Watch a file until the window says the sentence or LIMIT is over; return all that it says, and whether the
    watching could not be ended."""
    from PySide6.QtTest import QTest

    from tests.support.whole_window import WholeWindow

    assert isinstance(window, WholeWindow)
    session, console = window.session, window.console
    console.clear()
    window.notifier.withdraw()
    window.actions_by_key.trigger("watch-file", path)
    waited = 0.0

    def said() -> str:
        return " ".join(
            (*console.texts[1:], window.notifier.title, window.notifier.reason)
        )

    while waited < LIMIT and (says not in said() or (session.active and waited < 0.3)):
        QTest.qWait(50)
        waited += 0.05
    for chart in (window.curves, window.runs):
        chart.grab()
    session.stop()
    ended = 0.0
    while session.active and ended < LIMIT:
        QTest.qWait(50)
        ended += 0.05
    return said(), session.active


if __name__ == "__main__":
    sys.exit(main())
