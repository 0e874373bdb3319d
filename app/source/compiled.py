"""The module that a generated source defines, and random inputs for it."""

from __future__ import annotations

import contextlib
import linecache
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from app.source import layer_files, own_files, switches
from app.source.generated import InputSpec, OwnModel, Source
from app.source.layer_files import LayerFileError, UntrustedError
from app.source.layer_modules import builtins_with
from app.util.torchvision_import import mend_torchvision

if TYPE_CHECKING:
    from torch import Tensor, nn


def load_class(source: Source) -> Callable[[], nn.Module]:
    """Compile the text and return its class, or the function that makes its model. The text is registered in
    `linecache`, so tracebacks show its lines.

    Raises LayerFileError if a file that it imports from is not trusted or does not run.
    """
    if source.opened:
        mend_torchvision()
    if source.own is not None:
        check_own(source.own)
    name = source.filename
    linecache.cache[name] = (
        len(source.text),
        None,
        source.text.splitlines(keepends=True),
        name,
    )
    module = types.ModuleType(name)
    # dataclasses, pickle and torch.fx look a class's module up by name.
    sys.modules[name] = module
    if source.files:
        module.__dict__["__builtins__"] = builtins_with(source.files)
    exec(compile(source.text, name, "exec"), module.__dict__)
    factory: Callable[[], nn.Module] = module.__dict__[source.class_name]
    return factory


def make_module(source: Source) -> nn.Module:
    """Create a new instance, initialised from torch's global generator."""
    if not source.opened:
        return load_class(source)()
    file = Path(source.own.path) if source.own is not None else None
    # Its output must not be mixed with the events of a run; if it changed the folder, relative paths would move.
    with (
        contextlib.redirect_stdout(sys.stderr),
        contextlib.chdir(Path.cwd()),
        switches.noting(file),
    ):
        return load_class(source)()


def check_own(model: OwnModel) -> None:
    """Let the user's files of a model be imported. Raises LayerFileError for one that is missing, that has changed
    since the model was opened, or that is not trusted."""
    name = Path(model.path).name
    files = own_files.read(Path(model.path), model.module, model.found_from)
    if files is None:
        raise LayerFileError(
            f"{model.path} cannot be read; it defines the model. Restore it."
        )
    if not files.is_version(model.sha256):
        raise LayerFileError(
            f"{name} has changed since its model was opened. Open the model again."
        )
    if not layer_files.allowed(files.key):
        raise UntrustedError(f"{name} is not trusted yet, so none of its code was run")
    files.permit()


def random_inputs(source: Source, batch: int) -> tuple[Tensor, ...]:
    """Draw samples for every input from torch's global generator, in the input's range.

    Without a range, floats are standard normal and integers 0 or 1.
    """
    return tuple(_drawn(spec, spec.sizes(batch)) for spec in source.inputs)


def _drawn(spec: InputSpec, shape: tuple[int, ...]) -> Tensor:
    dtype, low, high = getattr(torch, spec.dtype), spec.low, spec.high
    if dtype.is_complex:
        return torch.randn(shape, dtype=dtype)
    if not dtype.is_floating_point:
        first = (
            int(low)
            if low is not None
            else min(0, int(high) - 1)
            if high is not None
            else 0
        )
        return torch.randint(
            first, int(high) if high is not None else first + 2, shape
        ).to(dtype)
    if low is not None and high is not None:
        return torch.rand(shape, dtype=dtype) * (high - low) + low
    drawn = torch.randn(shape, dtype=dtype)
    if low is None and high is None:
        return drawn
    return drawn.abs() + low if low is not None else (high or 0) - drawn.abs()
