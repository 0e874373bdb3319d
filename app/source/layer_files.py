"""Files of a person's own whose classes are layers: the text as a value, and the module that this very text defines.

Nothing of a file runs unless its text was allowed: `allow` is called for what a person trusts, by hash, and `load` asks
it each time. Every version of a text is a module of its own, under a private name, so two never mix.
"""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import json
import linecache
import os
import re
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from app.util.rng import borrowed
from app.util.torchvision_import import mend_torchvision

FOLDER = "imported_layers"  # in which files lie that an import wrote, each in a folder named after its hash
# How long the first import of a file may take, in seconds; torch's own import is part of it.
PATIENCE = 60.0
_FINE = 77

# Tries the import where it can do no harm to the program: a hang is ended, an exit ends nobody else.
_CHILD = """\
import json, os, sys, types
text, name = json.load(sys.stdin)
import torch
module = types.ModuleType("layers")
sys.modules["layers"] = module
try:
    exec(compile(text, name, "exec", dont_inherit=True), module.__dict__)
except SystemExit:
    sys.exit("it ends the program (sys.exit) when it is imported")
os._exit(77)
"""


class LayerFileError(ValueError):
    """A file of layers that cannot be used; the text names it and says why."""


class Untrusted(LayerFileError):
    """A file that nobody said may run."""


@dataclass(frozen=True)
class LayerFile:
    """A file's text and the name that it is imported by. `path` is where it was read, "" if nowhere."""

    module: str
    text: str
    sha256: str
    path: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.sha256 != digest(self.text):
            raise ValueError(f"{self.sha256} is not the hash of the text of {self.name}")

    @classmethod
    def of(cls, module: str, text: str, path: str = "") -> LayerFile:
        return cls(module, text, digest(text), path)

    @property
    def name(self) -> str:
        """What the file is called beside an exported model."""
        return f"{self.module}.py"

    @property
    def filename(self) -> str:
        """The name under which tracebacks show the text."""
        return f"<{self.name} {self.sha256[:12]}>"


_OWN = re.compile(r"<(.+\.py) [0-9a-f]{12}>")  # the name under which tracebacks show a file's text
_FRAME = re.compile(r'  File "([^"]+)", line \d+')


def digest(text: str) -> str:
    """The hash by which a text is trusted.

    >>> digest("x = 1")[:8]
    '8a6b85e4'
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


_Key = tuple[str, str]
_allowed: set[str] = set()
_tried: set[str] = set()
_modules: dict[_Key, types.ModuleType] = {}
_failed: dict[_Key, str] = {}
_trying, _running = threading.Lock(), threading.RLock()


def allow(sha256: str, tried: bool = False) -> None:
    """Let the text of this hash run from now on. `tried` says that it has run here before, to its end."""
    _allowed.add(sha256)
    if tried:
        _tried.add(sha256)


def disallow(sha256: str) -> None:
    """Let it run no more. Nets that are made already keep what they have of it."""
    _allowed.discard(sha256)


def allowed(sha256: str) -> bool:
    return sha256 in _allowed


def trusted() -> tuple[frozenset[str], frozenset[str]]:
    """The hashes that may run, and those of texts that have run to their end."""
    return frozenset(_allowed), frozenset(_tried)


def trust_only(allowed: Iterable[str], tried: Iterable[str]) -> None:
    """Let these run and no others, as another process does."""
    _allowed.clear()
    _allowed.update(allowed)
    _tried.update(tried)


def failure(file: LayerFile) -> str:
    """Why the file does not run to its end, "" if it did or nobody tried."""
    return _failed.get((file.module, file.sha256), "")


def has_run(sha256: str) -> bool:
    """Whether the text of this hash was run to its end in this process."""
    return any(key[1] == sha256 for key in _modules)


def load(file: LayerFile) -> types.ModuleType:
    """The module of a file, run once a version. Raises Untrusted, or LayerFileError if it does not run to its end."""
    if file.sha256 not in _allowed:
        raise Untrusted(f"{file.name} is not trusted yet, so nothing of it was run")
    key = (file.module, file.sha256)
    if key not in _modules and key not in _failed:
        # A run holds the generator during a step; who waits here for the trial must not hold what the run wants.
        with _trying:
            if file.sha256 not in _tried and key not in _failed and key not in _modules:
                _keep_failure(key, _try, file)
                _tried.add(file.sha256)
        with borrowed(), _running:
            if key not in _modules and key not in _failed:
                _keep_failure(key, _run, file)
    if key in _failed:
        raise LayerFileError(_failed[key])
    return _modules[key]


def attribute(file: LayerFile, name: str) -> Any:
    """A class of the file. Raises as `load` does, and LayerFileError if it has no such class."""
    try:
        return getattr(load(file), name)
    except AttributeError:
        raise LayerFileError(f"{file.name} has no {name} once it has run") from None


def builtins_with(files: Iterable[LayerFile]) -> dict[str, Any]:
    """Builtins for a module in which `from my_layers import Swish` means one of these files, and no other."""
    known = {file.module: file for file in files}
    plain = builtins.__import__

    def import_here(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if level == 0 and name in known:
            return load(known[name])
        return plain(name, globals, locals, fromlist, level)

    return {**vars(builtins), "__import__": import_here}


def _keep_failure(key: _Key, step: Callable[[LayerFile], None], file: LayerFile) -> None:
    """What does not run is not run again: a file that takes a minute to fail would take it for every shape."""
    try:
        step(file)
    except LayerFileError as error:
        _failed[key] = str(error)


def _try(file: LayerFile) -> None:
    """Import the text in a process of its own, which is ended if it takes too long."""
    command = [sys.executable, "-P", "-c", _CHILD]
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile() as told:
        try:
            done = subprocess.run(
                command,
                input=json.dumps([file.text, file.filename]).encode(),
                stdout=subprocess.DEVNULL,
                stderr=told,
                timeout=PATIENCE,
                env=surroundings,
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise LayerFileError(f"{file.name} was not done importing after {PATIENCE:.0f} seconds") from None
        if done.returncode == _FINE:
            return
        told.seek(max(0, told.tell() - 4096))
        lines = told.read().decode("utf-8", "replace").strip().splitlines()
    if done.returncode == 1 and lines and lines[-1][:1].isalpha():
        # Its own words come from the run in this process, with the line; an exit must not happen there.
        if "sys.exit" in lines[-1]:
            raise LayerFileError(f"{file.name} cannot be loaded: {lines[-1]}")
        return
    words = f"it ends the process with code {done.returncode}"
    raise LayerFileError(f"{file.name} cannot be loaded: {words} when it is imported")


def _run(file: LayerFile) -> None:
    """Run the text in a module of its own. What it prints goes to stderr: stdout may be read by a program."""
    import torch

    name = f"tapedeck_layers_{file.sha256[:12]}_{file.module}"
    module = types.ModuleType(name)
    module.__file__ = file.path or file.filename
    lines = file.text.splitlines(keepends=True)
    linecache.cache[file.filename] = (len(file.text), None, lines, file.filename)
    sys.modules[name] = module  # dataclasses and pickle look a class's module up by name
    mend_torchvision()
    try:
        # Shapes are found on meta tensors without gradients; what the file makes for itself is real.
        with torch.device("cpu"), torch.inference_mode(False), torch.enable_grad():
            with contextlib.redirect_stdout(sys.stderr):
                exec(compile(file.text, file.filename, "exec", dont_inherit=True), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise LayerFileError(f"{file.name} cannot be loaded: {told(error, file)}") from error
    _modules[file.module, file.sha256] = module


def told(error: BaseException, file: LayerFile) -> str:
    """The last line of an error's traceback, and the line of the file that it came from."""
    words = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    frames = traceback.walk_tb(error.__traceback__)
    places = [line for frame, line in frames if frame.f_code.co_filename == file.filename]
    line = error.lineno if isinstance(error, SyntaxError) else places[-1] if places else None
    return f"{words} (line {line})" if line else words


def place(trace: TracebackType | None) -> str:
    """Return where in a person's own files an error came from, such as "line 24 of layers.py", "" if in none."""
    found = ""
    for frame, line in traceback.walk_tb(trace):
        if own := _OWN.fullmatch(frame.f_code.co_filename):
            found = f"line {line} of {own[1]}"
    return found


def own_frames(text: str) -> str:
    """Return of a traceback what is of a person's own files and of the net, "" where nothing is of their files."""
    kept, taken, own = [], True, False
    for line in text.splitlines():
        if line.startswith('  File "'):
            file = _FRAME.match(line)
            mine = _OWN.fullmatch(file[1]) if file else None
            own, taken = own or mine is not None, file is not None and file[1].startswith("<")
            line = line.replace(file[1], mine[1]) if file and mine else line
        elif not line.startswith("  "):
            taken = True
        if taken:
            kept.append(line)
    return "\n".join(kept) if own else ""
