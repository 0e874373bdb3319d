"""Every command of the command line, asked about models that raise and files that cannot be read.

    python -m tests.slow.cli_contract

Each is one sentence with an exit code and a line of the user's file, without a line of the program's own code.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from app.cli import commands, run
from app.project import file
from app.util.resources import path as resource_path

MODELS = """
import torch
from torch import nn


class InInit(nn.Module):
    def __init__(self):
        super().__init__()
        raise KeyError("in the constructor")


class InForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(64, 10)

    def forward(self, x):
        return self.l(x).view(3, 5, 7)


class Refused(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        raise KeyError("in backward")


class InBackward(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(64, 10)

    def forward(self, x):
        return Refused.apply(self.l(x.flatten(1)))


class Exits(InForward):
    def forward(self, x):
        raise SystemExit(3)
"""

INPUT = ["--input", "x=2x64"]
ON = ["--on", "digits"]
# The commands that take a model from anywhere, with what else they need.
ON_MODELS = {
    "draw": ["--out", "o.json", *INPUT],
    "autograd": ["--out", "o.json", "--play", *INPUT],
    "import": ["-o", "o.tape", *INPUT],
    "attention": INPUT,
    "attribute": INPUT,
    "patch": ["--mute", "l", *INPUT],
    "diff": ["models.py:InForward", *INPUT],
    "check": [*ON, *INPUT],
    "train": ["--out", "out", "--epochs", "1", *ON, *INPUT],
    "try": [*ON, *INPUT],
    "fit": [*ON, *INPUT],
    "compile": INPUT,
    "evaluate": [*ON, *INPUT],
    "export": ["--weights", "o.pt", *INPUT],
    "sweep": ["--set", "lr=0.1", *ON, *INPUT],
    "data": [*ON, *INPUT],
}
IN_BACKWARD = ("autograd", "attribute", "train", "try", "fit", "sweep")
# The commands that take a project, with what else they need.
ON_PROJECTS = {
    "check": [],
    "train": ["--out", "out"],
    "sweep": ["--set", "lr=0.1"],
    "data": [],
    "try": [],
    "fit": [],
    "compile": [],
    "evaluate": [],
    "export": ["--code", "o.py"],
    "attention": [],
    "attribute": [],
    "patch": ["--mute", "l"],
    "revisit": ["--step", "1"],
    "autograd": ["--out", "o.json"],
    "diff": [str(resource_path("examples", "digits.tape"))],
    "open": [],
}
WITH_WEIGHTS = {"evaluate": [], "attention": [], "patch": ["--mute", "conv1"]}
for table in (ON_MODELS, ON_PROJECTS, WITH_WEIGHTS):
    for command in {*table} - {*commands()}:  # whose feature is not there
        del table[command]
UNREADABLE = ("missing", "folder", "damaged", "unreadable")
# The commands that read no project and no model.
NO_SOURCES = {*commands()} - {*ON_MODELS} - {*ON_PROJECTS}


class Case(NamedTuple):
    """A command that fails: its exit code, and what its sentence contains."""

    arguments: tuple[str, ...]
    code: int
    says: tuple[str, ...] = ()


def prepare(folder: Path) -> None:
    """Write models that raise, and files that cannot be read, into a folder."""
    (folder / "models.py").write_text(MODELS)
    (folder / "folder.tape").mkdir()
    (folder / "folder.pt").mkdir()
    for name in ("damaged.tape", "damaged.pt"):
        (folder / name).write_bytes(b'{"format": 1, \xff')
    for name in (
        "unreadable.tape",
        "unreadable.pt",
    ):  # as a file that one may not read, for every user
        (folder / name).symlink_to(name)
    file.write(file.read(resource_path("examples", "digits.tape")), folder / "p.tape")


def raising(command: str, model: str, *says: str) -> Case:
    """Return a command about one of `MODELS`."""
    code = 2 if command == "diff" else 1
    return Case(
        (command, f"models.py:{model}", *ON_MODELS[command], "--trust"), code, says
    )


def in_forward(command: str) -> Case:
    """Return a command about a model whose forward raises."""
    return raising(
        command,
        "InForward",
        "line 18" if command == "import" else "line 18 of models.py",
    )


def in_backward(command: str) -> Case:
    """Return a command about a model whose backward raises."""
    return raising(command, "InBackward", "KeyError", "line 28 of models.py")


def absent(command: str, source: str = "none.py:Net") -> Case:
    """Return a command about a model that is not there."""
    return Case((command, source, *ON_MODELS[command], "--trust"), 2)


def unread(command: str, name: str) -> Case:
    """Return a command about a project that cannot be read."""
    return Case((command, f"{name}.tape", *ON_PROJECTS[command]), 2, (f"{name}.tape",))


def unread_weights(command: str, name: str) -> Case:
    """Return a command with weights that cannot be read."""
    return Case(
        (command, "p.tape", "--weights", f"{name}.pt", *WITH_WEIGHTS[command]),
        2,
        (f"{name}.pt",),
    )


def cases() -> Iterator[Case]:
    """Yield every command with everything that fails in it."""
    for command in ON_MODELS:
        yield raising(
            command, "InInit", "KeyError: 'in the constructor' (line 9 of models.py)"
        )
        yield in_forward(command)
        yield raising(
            command,
            "Exits",
            "ended the process" if command in ("import", "diff") else "SystemExit",
        )
        yield absent(command)
        yield absent(command, "no_such_package:Net")
    yield from map(in_backward, filter(commands().__contains__, IN_BACKWARD))
    for name in UNREADABLE:
        yield from (unread(command, name) for command in ON_PROJECTS)
        yield from (unread_weights(command, name) for command in WITH_WEIGHTS)


def fault(case: Case) -> str:
    """Run a command in this process and folder; return what is wrong with what it says, "" if nothing is."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = run(case.arguments)
    lines = said.getvalue().splitlines() or [""]
    missing = [words for words in case.says if words not in lines[-1]]
    shown = [line for line in lines if "site-packages" in line or "/app/" in line]
    if code == case.code and lines[-1] and not missing and not shown:
        return ""
    return f"exit {code}, expected {case.code}; {lines[-1] or 'nothing said'}; missing {missing}; code shown {shown}"


def main() -> int:
    """Print a table of all cases; return 1 if there is a fault."""
    from app.views.pictures import headless_pictures

    headless_pictures.run_pictures = lambda *_: None  # type: ignore[assignment]  # those of a run take longer than it
    faults = total = 0
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        own = {
            f"XDG_{name}_HOME": folder for name in ("CONFIG", "DATA", "CACHE", "STATE")
        }
        os.environ.update(own, QT_QPA_PLATFORM="offscreen")
        prepare(Path(folder))
        for case in cases():
            if case.arguments[0] == "attribute" and find_spec("captum") is None:
                continue
            wrong = fault(case)
            total += 1
            faults += bool(wrong)
            print(
                f"{'FAULT' if wrong else 'right'}  tapedeck {' '.join(case.arguments)}  {wrong}".rstrip(),
                flush=True,
            )
    print(f"{total - faults} of {total} are one sentence with the right exit code")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
