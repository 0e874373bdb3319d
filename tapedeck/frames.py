"""The frames of a watched script: JSON lines in an append-only file, in a folder that only its owner can open.

Each frame is a NamedTuple here, by which the watcher writes it and the program reads it: its line has the name of the
class as `event`, and its fields; one that equals its default is left out. A number that is not finite is null. The
lines of `train.py --json` are frames too.

A file of frames names no address: where a script listens for commands follows from the folder that it lies in.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from pathlib import Path, PurePath
from typing import Annotated, Any, NamedTuple

FRAMES = "frames.jsonl"
MOST_KEPT = 30  # folders of scripts
FLUSH_EVERY = 0.05  # seconds
_LONG_LINES = 256  # lines that are written at once without waiting for that
TRY_AGAIN = 75  # EX_TEMPFAIL of sysexits.h: a script ends with it to be started again
# The environment variable with the steps and seconds of a run before the script that goes on with it.
RESUMED = "TAPEDECK_RESUMED"
SOCKET, PORT = "commands.sock", "commands.port"  # in the folder of the frames
_LONGEST_PATH = 100  # bytes that every system takes for the path of a socket
MOST_COUNT = 2**53  # integers up to it are exact as floats
MOST_TEXT = 4096  # characters
MOST_ITEMS = 20_000  # of a list


class Range(NamedTuple):
    """The least and the greatest value of a number."""

    least: float
    most: float


class MaxLength(NamedTuple):
    """The most characters of a text, or items of a list."""

    most: int


Count = Annotated[int, Range(0, MOST_COUNT)]
StepNumber = Annotated[int, Range(1, MOST_COUNT)]
Size = Count | None  # bytes
Number = Annotated[float, Range(-1e300, 1e300)] | None  # None: not finite
Seconds = Annotated[float, Range(0, 1e12)]
Text = Annotated[str, MaxLength(MOST_TEXT)]
Texts = Annotated[list[Text], MaxLength(MOST_ITEMS)]
Numbers = Annotated[list[Number], MaxLength(MOST_ITEMS)]


class Script(NamedTuple):
    """The first frame of a script. `job` and `world` are of one on several ranks. `commands` says that it listens."""

    argv: Texts
    pid: Count
    rank: Count = 0
    world: Count = 1
    job: Text = ""
    commands: bool = False


class Started(NamedTuple):
    """The first step of a run is due; a script knows of no epochs, batches, seed and samples.

    `torch` is its version, and `host` the name of the machine.
    """

    device: Text
    parameters: Count
    epochs: StepNumber = 1
    batch_size: StepNumber | None = None
    seed: Annotated[int, Range(-(2**63), 2**63 - 1)] | None = None
    train_count: Count = 0
    validation_count: Count = 0
    resumed_at: Count = 0
    loss: Text = ""
    torch: Text = ""
    host: Text = ""


class Step(NamedTuple):
    """`seconds` are since the first step without pauses; `rate` is there where it changed."""

    epoch: Count
    step: StepNumber
    loss: Number
    seconds: Seconds | None = None
    rate: Number = math.nan


class Losses(NamedTuple):
    """Losses of several outputs at a step; each is another field, `loss_` and its name."""

    epoch: Count
    step: StepNumber


class Epoch(NamedTuple):
    """The figures of an epoch, which `train.py` tells; further ones of the validation samples are other fields, `val_`
    and their names.
    """

    epoch: Count
    step: Count
    train_loss: Number
    train_accuracy: Number
    val_loss: Number
    val_accuracy: Number


class Skipped(NamedTuple):
    """A batch that was not trained on, when `step` was the next one; `reason` is a sentence."""

    epoch: Count
    step: StepNumber
    reason: Text = ""


class Layers(NamedTuple):
    """The names of the rows of all later norms."""

    layers: Texts


class Norms(NamedTuple):
    """L2 norms of gradients, one a layer."""

    step: StepNumber
    norms: Numbers


class Rates(NamedTuple):
    """Learning rates of several parameter groups."""

    step: Count
    groups: Texts
    rates: Numbers


class Rate(NamedTuple):
    """A learning rate was set by hand."""

    step: Count
    rate: Annotated[float, Range(0, 1e300)]
    group: Text = ""


class Memory(NamedTuple):
    """Memory of the `device` by torch, or of the `process`, in bytes."""

    step: Count
    seconds: Seconds
    scope: Text
    allocated: Size
    reserved: Size
    peak: Size
    resident: Size


class Looking(NamedTuple):
    """The seconds that watching has cost so far, out of those since the first step."""

    step: Count
    steps: Count
    spent: Seconds
    seconds: Seconds


class Said(NamedTuple):
    """A message for the person who watches."""

    step: Count
    message: Text


class GraphBreak(NamedTuple):
    """A line, file:line, that torch.compile leaves to Python in `layer`, "" for the model; `hints` are a line each."""

    step: Count
    layer: Text
    line: Text
    kind: Text
    explanation: Text
    hints: Text = ""


class Recompiled(NamedTuple):
    """Code was compiled again, in `layer`, as a guard failed: a reason of torch's log."""

    step: Count
    layer: Text
    reason: Text


class Saved(NamedTuple):
    """A checkpoint was saved; `problem` says why not otherwise."""

    step: Count
    path: Text
    problem: Text


class Paused(NamedTuple):
    epoch: Count
    step: Count


class Resumed(NamedTuple):
    epoch: Count
    step: Count


class Finished(NamedTuple):
    """The end: `reason` is "done", "stopped", or "left" where the script goes on and is watched no longer."""

    reason: Text
    epoch: Count
    steps: Count
    note: Text = ""


class Failed(NamedTuple):
    """The end by an exception."""

    kind: Text
    message: Text
    cure: Text
    node: Text | None
    epoch: Count
    step: Count


KINDS: tuple[type[Any], ...] = (
    Script,
    Started,
    Step,
    Losses,
    Epoch,
    Skipped,
    Layers,
    Norms,
    Rates,
    Rate,
    Memory,
    Looking,
    Said,
    GraphBreak,
    Recompiled,
    Saved,
    Paused,
    Resumed,
    Finished,
    Failed,
)


def event_of(kind: type[Any]) -> str:
    """Return the `event` of a kind of frame, the name of its class with underscores."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()


def line_of(frame: Any) -> str:
    """Return the line of a frame, its texts and lists cut to what a reader takes.

    >>> line_of(Rate(3, 0.1))
    '{"event": "rate", "step": 3, "rate": 0.1}'
    """
    defaults = frame._field_defaults
    fields = {
        name: value
        for name, value in frame._asdict().items()
        if value != defaults.get(name, defaults)
    }
    return json.dumps(
        {"event": event_of(type(frame))}
        | {name: _plain(value) for name, value in fields.items()}
    )


def line_of_step(step: int, loss: float, seconds: float, rate: float | None) -> str:
    """Return the line of a `Step`, at less cost: scripts write one at every step. A rate of None is as before."""
    changed = "" if rate is None else f', "rate": {number(rate)}'
    time = f"{max(seconds, 0.0):.6f}{changed}"
    return f'{{"event": "step", "epoch": 1, "step": {step}, "loss": {number(loss)}, "seconds": {time}}}'


def home() -> Path:
    """Return the parent folder of the watched scripts' folders; it need not exist."""
    if configured := os.environ.get("TAPEDECK_WATCHED"):
        return Path(configured)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    else:
        base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "tapedeck" / "watched"


def folder_title(name: str) -> str:
    """Return the name of the folder of a script that is started now, but for its random end."""
    letters = (
        "".join(
            letter if letter.isalnum() or letter in "-_." else "-" for letter in name
        )[:40]
        or "script"
    )
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{letters}-{os.getpid()}-"


def new_folder(name: str, whole: str = "") -> Path:
    """Create a folder of mode 0700 for a script, falling back to a temporary one; remove the oldest of many.

    With its `whole` name, raises OSError if it cannot be created, FileExistsError if it is there.
    """
    title = folder_title(name)
    try:
        above = home()
        above.mkdir(parents=True, exist_ok=True, mode=0o700)
        _remove_oldest(above)
        if whole:
            (above / whole).mkdir(mode=0o700)
            return above / whole
        return Path(tempfile.mkdtemp(prefix=title, dir=above))  # of mode 0700
    except OSError:
        if whole:
            raise
        return Path(tempfile.mkdtemp(prefix=f"tapedeck-{title}"))


def _remove_oldest(above: Path) -> None:
    folders = sorted(path for path in above.iterdir() if (path / FRAMES).is_file())
    for path in folders[: max(0, len(folders) - MOST_KEPT)]:
        with contextlib.suppress(OSError):
            if (
                time.time() - (path / FRAMES).stat().st_mtime > 86_400
            ):  # seconds; its script may still be there
                shutil.rmtree(path)


def script_of(path: PurePath) -> str:
    """Return the name of the script that a file of frames in a folder of `new_folder` is of, else that of the file.

    >>> script_of(Path("20261128-225930-train-1234-x1y2/frames.jsonl"))
    'train'
    """
    title = re.fullmatch(r"(?:tapedeck-)?\d{8}-\d{6}-(.+)-\d+-[^-]+", path.parent.name)
    return title[1] if title is not None and path.name == FRAMES else path.name


def newest() -> Path | None:
    """Return the frames of the script that was started last; None if there is none."""
    try:
        return max(
            (path / FRAMES for path in home().iterdir() if (path / FRAMES).is_file()),
            default=None,
        )
    except OSError:
        return None


def socket_path(folder: Path) -> Path:
    """Return where the script whose frames lie in `folder` listens; elsewhere where that path is too long for a socket.

    Elsewhere is a folder of the user's own below /tmp, named by a digest of the path.
    """
    folder = folder.resolve()
    path = folder / SOCKET
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        return path
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:32]
    return Path("/tmp", f"tapedeck-{os.geteuid()}-{digest}", SOCKET)


def is_private(path: Path) -> bool:
    """Return whether a folder belongs to the caller, and no other user can open it."""
    status = os.lstat(path)
    if not hasattr(os, "geteuid"):
        return stat.S_ISDIR(status.st_mode)
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.geteuid()
        and not stat.S_IMODE(status.st_mode) & 0o077
    )


def number(value: float | None) -> str:
    """Return a float as JSON, at full precision; null if it is not finite."""
    return repr(value) if value is not None and math.isfinite(value) else "null"


class Ending(NamedTuple):
    """How the watching of a script ended: a `reason` as in `Finished`, or an `error`. With `again`, it is no end."""

    reason: str = "done"
    note: str = ""
    error: str = ""
    again: bool = False

    def frame(self, steps: int) -> Finished | Failed | Said:
        """Return the last frame of a script that has taken so many steps."""
        epoch = min(steps, 1)
        if self.again:
            return Said(steps, self.note)
        if self.error:
            return Failed(
                "error", self.error, "The terminal shows where.", None, epoch, steps
            )
        return Finished(self.reason, epoch, steps, self.note)


DONE = Ending()


class FrameFile:
    """Appends lines to a file, several at once; errors are ignored, so that the script continues."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: list[str] = []
        self._flushed = -math.inf
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        self._file = os.open(path, flags, 0o600)

    def add(self, lines: list[str], now: float) -> None:
        """Append lines of JSON; they are written with the next ones after at most FLUSH_EVERY seconds of steps."""
        self._lines += lines
        if now - self._flushed >= FLUSH_EVERY or len(self._lines) >= _LONG_LINES:
            self._flushed = now
            self.flush()

    def tell(self, frame: Any) -> None:
        """Append a rare frame, and write all there is."""
        self._lines.append(line_of(frame))
        self.flush()

    def flush(self) -> None:
        """Write the lines that wait."""
        if not self._lines or self._file < 0:
            self._lines.clear()
            return
        data = memoryview(("\n".join(self._lines) + "\n").encode("utf-8", "replace"))
        self._lines.clear()
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError:
            self.close()  # no room on the disk: half a line stays, and nothing is put behind it

    def close(self) -> None:
        """Close the file without flushing pending lines."""
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = -1


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return (
            value[:MOST_TEXT].encode("utf-8", "replace").decode()
        )  # no halves of surrogate pairs
    if isinstance(value, list | tuple):
        return [_plain(element) for element in value[:MOST_ITEMS]]
    return value
