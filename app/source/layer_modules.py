"""Import of trusted layer files: first in a separate trial process, then in this one.

Every version of a text is a separate module under a private name. The trial process is not an engine: it runs wherever
a file is first imported, in engines and commands too, and its exit status is its only answer.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import linecache
import os
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch

from app.source import layer_files, own_imports
from app.source.layer_files import LayerFile, LayerFileError, UntrustedError, error_text
from app.util.resources import python_path
from app.util.rng import borrowed
from app.util.torchvision_import import mend_torchvision

# How long the first import of a file may take, in seconds; torch's own import is part of it.
PATIENCE = 60.0
_FINE = 77

# Tries the import in isolation, against hangs and exits.
_CHILD = """\
import importlib, json, os, sys, types
text, name, own_imports = json.load(sys.stdin)
importlib.import_module(own_imports).guard()
import torch
module = types.ModuleType("layers")
sys.modules["layers"] = module
try:
    exec(compile(text, name, "exec", dont_inherit=True), module.__dict__)
except SystemExit:
    sys.exit("it ends the program (sys.exit) when it is imported")
os._exit(77)
"""

_Key = tuple[str, str]
_modules: dict[_Key, types.ModuleType] = {}
_failed: dict[_Key, str] = {}
_trying, _running = threading.Lock(), threading.RLock()


def failure(file: LayerFile) -> str:
    """Return why the file does not run to completion, "" if it did or was not tried."""
    return _failed.get((file.module, file.sha256), "")


def load(file: LayerFile) -> types.ModuleType:
    """Return the module of a file, run once per version. Raises UntrustedError, or LayerFileError if it fails."""
    if not layer_files.allowed(file.sha256):
        raise UntrustedError(
            f"{file.name} is not trusted yet, so none of its code was run"
        )
    own_imports.guard()
    key = (file.module, file.sha256)
    if key not in _modules and key not in _failed:
        # A run holds the generator during a step; waiting here for the trial must not hold a lock that the run needs.
        with _trying:
            if (
                not layer_files.tried(file.sha256)
                and key not in _failed
                and key not in _modules
            ):
                _keep_failure(key, _try, file)
                if key not in _failed:
                    layer_files.note_tried(file.sha256)
        with borrowed(), _running:
            if key not in _modules and key not in _failed:
                _keep_failure(key, _run, file)
    if key in _failed:
        raise LayerFileError(_failed[key])
    return _modules[key]


def attribute(file: LayerFile, name: str) -> Any:
    """Return a class of the file. Raises as `load` does, and LayerFileError if it has no such class."""
    try:
        return getattr(load(file), name)
    except AttributeError:
        raise LayerFileError(f"{file.name} has no {name} once it has run") from None


def builtins_with(files: Iterable[LayerFile]) -> dict[str, Any]:
    """Return builtins for a module in which `from my_layers import Swish` resolves to one of these files only."""
    files_by_module = {file.module: file for file in files}
    plain = builtins.__import__

    def import_here(
        name: str,
        globals: Any = None,
        locals: Any = None,
        fromlist: Any = (),
        level: int = 0,
    ) -> Any:
        if level == 0 and name in files_by_module:
            return load(files_by_module[name])
        return plain(name, globals, locals, fromlist, level)

    return {**vars(builtins), "__import__": import_here}


def _keep_failure(
    key: _Key, step: Callable[[LayerFile], None], file: LayerFile
) -> None:
    """Cache a failure: a file that takes a minute to fail must not take it for every shape."""
    try:
        step(file)
    except LayerFileError as error:
        _failed[key] = str(error)


def _try(file: LayerFile) -> None:
    """Import the text in a separate process, with a timeout."""
    command = [sys.executable, "-P", "-c", _CHILD]
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": python_path()}
    with tempfile.TemporaryFile() as stderr_file:
        try:
            done = subprocess.run(
                command,
                input=json.dumps(
                    [file.text, file.filename, own_imports.__name__]
                ).encode(),
                stdout=subprocess.DEVNULL,
                stderr=stderr_file,
                timeout=PATIENCE,
                env=surroundings,
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise LayerFileError(
                f"{file.name} was not done importing after {PATIENCE:.0f} seconds"
            ) from None
        if done.returncode == _FINE:
            return
        stderr_file.seek(max(0, stderr_file.tell() - 4096))
        lines = stderr_file.read().decode("utf-8", "replace").strip().splitlines()
    if done.returncode == 1 and lines and lines[-1][:1].isalpha():
        # Its own words come from the run in this process, with the line; an exit must not happen there.
        if "sys.exit" in lines[-1]:
            raise LayerFileError(f"{file.name} cannot be loaded: {lines[-1]}")
        return
    reason = f"it ends the process with code {done.returncode}"
    raise LayerFileError(f"{file.name} cannot be loaded: {reason} when it is imported")


def _run(file: LayerFile) -> None:
    """Run the text as a separate module, with its output on stderr, since stdout may be parsed."""
    name = f"tapedeck_layers_{file.sha256[:12]}_{file.module}"
    module = types.ModuleType(name)
    module.__file__ = file.path or file.filename
    lines = file.text.splitlines(keepends=True)
    linecache.cache[file.filename] = (len(file.text), None, lines, file.filename)
    sys.modules[name] = (
        module  # dataclasses and pickle look a class's module up by name
    )
    mend_torchvision()
    try:
        # Shape inference runs this under meta device and no_grad; the file's own tensors must be real.
        with torch.device("cpu"), torch.inference_mode(False), torch.enable_grad():
            with contextlib.redirect_stdout(sys.stderr):
                exec(
                    compile(file.text, file.filename, "exec", dont_inherit=True),
                    module.__dict__,
                )
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise LayerFileError(
            f"{file.name} cannot be loaded: {error_text(error, file)}"
        ) from error
    _modules[file.module, file.sha256] = module
