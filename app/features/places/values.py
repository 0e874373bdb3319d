"""A place is a name for a machine behind ssh, or a queue, and a command that gives a Python; all are in one file."""

from __future__ import annotations

import re
import shlex
from pathlib import Path, PurePosixPath
from typing import ClassVar

import msgspec
from msgspec import Struct

from app.engine.protocol import Request
from app.project.project import Project
from app.training.job import Job
from app.util import atomic, user_folders
from app.util.errors import CodedError
from app.util.resources import path as resource

FILE = "places.json"
NOTE = "place.json"  # in the folder of a run that goes on at a place
_TITLE = r"\d{8}-\d{6}-[^/]+-\d+-[0-9a-f]{8}"  # as `frames.folder_title` begins it
SCRIPT = "train.py"
CHECKPOINTS = "checkpoints"  # a folder, as `tapedeck.slurm` has it
# An alias is also what ssh puts into the commands of its own config, as %h and %n.
_NAME, _ALIAS = r"[A-Za-z0-9][A-Za-z0-9_.-]+", r"[A-Za-z0-9_][A-Za-z0-9_.@:\[\]-]*"


class PlaceError(CodedError):
    """A place cannot be reached or used; the text says why and what helps. `final`: another try would not."""

    def __init__(self, message: str, final: bool = True) -> None:
        super().__init__(message)
        self.final = final


class Place(Struct, frozen=True):
    """`ssh` is a Host of ~/.ssh/config, or user@host; `python` is text for the shell there. With `slurm`, the file of a
    template for sbatch, scripts are jobs of the queue there; without `ssh`, of that on this machine.
    """

    name: str
    ssh: str = ""
    python: str = "python3"
    slurm: str = ""

    @property
    def options(self) -> str:
        """The options of `places add` that say where it is."""
        given = (
            ("--ssh", self.ssh),
            ("--slurm", self.slurm and shlex.quote(self.slurm)),
        )
        return " ".join(f"{option} {value}" for option, value in given if value)

    def request(self) -> dict[str, str]:
        """Return what a request to run something there says of the queue. Raises PlaceError."""
        if not self.slurm:
            return {}
        try:
            return {"slurm": Path(self.slurm).read_text("utf-8")}
        except (OSError, UnicodeDecodeError) as error:
            raise PlaceError(
                f"{self.slurm}, the template of {self.name}, cannot be read: {error}"
            ) from error


class PreparedScript(Struct, frozen=True):
    """A script and what lies beside it, in base64 by name, with the position of the checkpoint that it goes on from."""

    files: dict[str, str]
    step: int = 0
    epochs: int = 0
    seconds: float = 0.0


class PrepareScript(Request[PreparedScript], frozen=True):
    """Return the exported script of a job, and a checkpoint that it goes on from. Raises CheckpointError."""

    job: Job
    checkpoint: Path | None = None


class RunAtPlace(Struct, frozen=True):
    """A run of the project that a place carries out: `files` of its script by name, in base64.

    Its frames go into `folder` here, its checkpoints into `results`, and it has the folder `title` there; once it has
    begun that is known as the path `there`. One that goes on from a checkpoint, the `checkpoint_of` that step among its
    files, has so many epochs and seconds before it.
    """

    place: str
    title: str
    files: dict[str, str]
    folder: str
    results: str
    there: str = ""
    step: int = 0
    epochs: int = 0
    seconds: float = 0.0

    @property
    def note(self) -> Path:
        """The file beside the results that says where it goes on, until its end was told."""
        return Path(self.results).with_name(NOTE)


def checkpoint_of(step: int) -> str:
    """Return the name of the file of a checkpoint, in the folder of a run at a place."""
    return f"{CHECKPOINTS}/step-{step:08d}.pt"


class RunGoingOn(Struct, frozen=True):
    """A stored run that goes on at a place: the project that it was started with, and its job."""

    project: Project
    job: Job


class FindRunGoingOn(Request[RunGoingOn], frozen=True):
    """Find the project and the job of a stored run. Raises RunError."""

    lane: ClassVar[str] = "runs"
    run: Path
    data_root: str


class _Stored(Struct):
    places: list[Place]
    format: int = 1


def file() -> Path:
    """Return the file of the places; it need not exist."""
    return user_folders.config() / FILE


def places() -> dict[str, Place]:
    """Return all places by name. Raises PlaceError for a file that cannot be read."""
    try:
        stored = msgspec.json.decode(file().read_bytes(), type=_Stored)
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"{file()} cannot be read: {error}. Correct it, or remove it and add your places again."
        raise PlaceError(message) from error
    return {place.name: checked(place) for place in stored.places}


def save(new: dict[str, Place]) -> None:
    """Write all places. Raises OSError."""
    file().parent.mkdir(parents=True, exist_ok=True)
    data = msgspec.json.format(msgspec.json.encode(_Stored([*new.values()])), indent=1)
    atomic.write_bytes(file(), data)


def named(name: str) -> Place:
    """Return a place by its name. Raises PlaceError."""
    known = places()
    if name in known:
        return known[name]
    others = f"there are {', '.join(known)}" if known else "there are none yet"
    raise PlaceError(
        f"{name} is no place; {others}. tapedeck places add {name} --ssh ALIAS makes it one."
    )


def checked(place: Place) -> Place:
    """Return a place whose names are names. Raises PlaceError."""
    if not re.fullmatch(_NAME, place.name):
        problem = f"{place.name!r} is no name of a place: two or more of letters, digits, . _ -"
    elif not re.fullmatch(_ALIAS, place.ssh) and (place.ssh or not place.slurm):
        problem = f"{place.ssh!r} is no host for ssh: give a Host of ~/.ssh/config, or user@host"
    elif not place.python.strip() or not place.python.isprintable():
        problem = f"{place.python!r} is no command for a Python: it is one line, such as ~/env/bin/python"
    else:
        return place
    raise PlaceError(problem)


def template_path(text: str) -> str:
    """Return the whole path of a template; "" for none."""
    return str(Path(text).expanduser().absolute()) if text else ""


def make_template(place: Place) -> str:
    """Write the default sbatch template if its file does not exist, and return a hint to edit it, else "".

    Raises OSError.
    """
    template = Path(place.slurm)
    if not place.slurm or template.exists():
        return ""
    atomic.write_bytes(template, resource("slurm.sbatch").read_bytes())
    return f"{template} is new: edit its lines of #SBATCH for your queue"


def split(text: str) -> tuple[str, str]:
    """Return the name of a place and a path there; the path is "" where only a place is named.

    >>> split("gpubox:runs/a b/frames.jsonl"), split("gpubox")
    (('gpubox', 'runs/a b/frames.jsonl'), ('gpubox', ''))
    """
    name, _, path = text.partition(":")
    return name, path


def left_in(folder: Path) -> RunAtPlace | None:
    """Return the run at a place that goes on, as far as is known, by the folder of its record; None if it is none.

    That folder may have come with somebody else's project: it names a folder of watched runs, and nothing to be run.
    """
    try:
        run = msgspec.json.decode((folder / NOTE).read_bytes(), type=RunAtPlace)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    path = PurePosixPath(run.there)
    is_watched = (
        path.is_absolute() and path.name == run.title and ".." not in path.parts
    )
    if not is_watched or not re.fullmatch(_TITLE, run.title):
        return None
    return RunAtPlace(
        run.place,
        run.title,
        {},
        folder="",
        results="",
        there=run.there,
        step=run.step,
        epochs=run.epochs,
        seconds=run.seconds,
    )
