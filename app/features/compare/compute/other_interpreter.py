"""Run a side of a comparison in another interpreter: a script that imports the standard library and torch alone."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from app.engine.requests.observe import Observe
from app.features.compare.compute.other_python_pass import FOUND, GIVEN
from app.features.compare.values import DiffSide
from app.source import layer_files
from app.source.generated import Source
from app.sources.finding import files_of, package_of
from app.sources.spec import SourceError
from app.util import tensor_files
from app.util.leftovers import TemporaryFolder
from app.util.resources import PATH_ENTRY

POLL = 0.05  # seconds
NET = "tapedeck_net"
# The program is on Python's path only while the script is imported.
PROGRAM = """
import sys
root, folder = sys.argv[1:]
sys.path[:] = [root, *filter(None, sys.path)]
try:
    from app.features.compare.compute.other_python_pass import main
finally:
    sys.path.remove(root)
main(folder)
"""


def exchange_with(
    python: str, side: DiffSide, cancelled: Callable[[], bool] = lambda: False
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return the function that runs a side in the interpreter `python`. It raises SourceError with its last line."""
    how = _how(side)

    def exchange(tensors: dict[str, Any]) -> dict[str, Any]:
        with TemporaryFolder() as folder:
            make = how
            if isinstance(side.model, Source):
                code = _written(side.model, Path(folder, "code"))
                make = how | {"paths": [str(code)]}
            _write(tensors | {"make": json.dumps(make)}, Path(folder, GIVEN))
            _run(python, folder, cancelled)
            answer: dict[str, Any] = tensor_files.load(Path(folder, FOUND))
            return answer

    return exchange


def _written(source: Source, folder: Path) -> Path:
    """Write the text of a net, and the files of layers that it imports, as modules."""
    folder.mkdir()
    for name, text in (
        (NET, source.text),
        *((layer_file.module, layer_file.text) for layer_file in source.files),
    ):
        Path(folder, f"{name}.py").write_text(text, encoding="utf-8")
    return folder


def _write(tensors: dict[str, Any], file: Path) -> None:
    torch.save(tensors, file)
    try:
        tensor_files.load(file)
    except Exception as error:  # whatever an input holds
        reason = str(error).split("\n")[0]
        raise SourceError(
            f"its inputs cannot be sent to another interpreter, which takes only tensors: {reason}"
        ) from error


def _run(python: str, folder: str, cancelled: Callable[[], bool]) -> None:
    """Run the script to its end. Raises SourceError."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONHOME")
    }
    with tempfile.TemporaryFile() as stderr_file:
        try:
            process = subprocess.Popen(
                [python, "-c", PROGRAM, str(PATH_ENTRY), folder],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr_file,
                env=environment,
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )
        except OSError as error:
            raise SourceError(
                f"{python} cannot be started: {error.strerror or error}"
            ) from error
        try:
            while process.poll() is None:
                if cancelled():
                    raise SourceError("cancelled")
                time.sleep(POLL)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        stderr_file.seek(0)
        lines = stderr_file.read().decode("utf-8", "replace").strip().splitlines()
    if process.returncode:
        last = lines[-1] if lines else f"it ended with code {process.returncode}"
        raise SourceError(f"{python} could not run the model: {last}")


def _how(side: DiffSide) -> dict[str, Any]:
    """Return the recipe by which the other interpreter makes a model, for JSON. Raises SourceError if there is none."""
    model = side.model
    if isinstance(model, Source):
        return {
            "kind": "module",
            "module": NET,
            "name": model.class_name,
            "arguments": {},
        }
    assert isinstance(model, Observe)
    source = model.source
    how = {
        "kind": source.kind,
        "name": source.name,
        "module": source.where,
        "paths": [model.folder or os.getcwd()],
        "arguments": dict(model.arguments),
    }
    if (files := files_of(source, model.folder)) is not None:
        if not layer_files.allowed(files.key):
            raise SourceError(
                f"{files.entry.name} is not trusted as it is now, so none of its code was run"
            )
        how |= files.permission()
    if source.kind == "file":
        top, name = package_of(Path(model.folder, source.where))
        return how | {"module": name, "paths": [str(top)]}
    if source.kind in ("torchvision", "timm"):
        return how | {"paths": []}
    if source.kind == "module":
        return how
    raise SourceError(
        f"{source} cannot be made in another interpreter: write a function that makes it in a file, and name that as "
        "file.py:function()"
    )
