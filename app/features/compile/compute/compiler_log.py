"""Graph breaks and recompiles while a model is compiled, each with the module called."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from msgspec import Struct
from torch import nn

from app.features.compile.compute import guards
from app.features.compile.cures import cure
from app.features.compile.guard_text import FailedGuard
from app.util import user_frames
from tapedeck import compiler_log
from tapedeck.compiler_log import BreakText, Location

_TORCH = os.path.dirname(torch.__file__)


class LoggedBreak(Struct, frozen=True):
    """A graph break while `module` was called; `frames` lead to it from the outermost call inwards."""

    frames: tuple[Location, ...]
    module: str
    kind: str
    reason: str
    cure: str


class LoggedRecompile(Struct, frozen=True):
    """A guard that failed while `module` was called, whose code begins at `location`."""

    location: Location
    module: str
    guard: FailedGuard

    @property
    def of_size(self) -> bool:
        """Return whether a tensor has another size, which is compiled as one that may change from then on."""
        return self.guard.text.endswith(("size mismatch", "stride mismatch"))


def is_models(file: str) -> bool:
    """Return whether a file is code of the model: neither torch's, nor Python's, nor the program's."""
    return user_frames.is_users(file) or file.startswith(user_frames.GENERATED)


class CompilerLog(compiler_log.CompilerLog):
    """`breaks`, `recompiles`, and the `code` of Inductor; `paths` are the paths of modules by identity."""

    def __init__(self, paths: Mapping[int, str]) -> None:
        super().__init__()
        self._paths = paths
        self.breaks: list[LoggedBreak] = []
        self.recompiles: list[LoggedRecompile] = []
        self.code: list[str] = []

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle dynamo's log, and suppress its warnings about the same breaks."""
        compiler = logging.getLogger("torch._dynamo")
        level = compiler.level
        compiler.setLevel(logging.ERROR)
        self.attach()
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", module=r"torch\._dynamo")
                yield
        finally:
            self.detach()
            compiler.setLevel(level)

    def broke(self, text: BreakText) -> None:
        frames, kind, why, hints = text
        reason = f"{kind}: {why}" if why else kind
        self.breaks.append(
            LoggedBreak(
                frames,
                self._module(),
                kind,
                reason.removesuffix("."),
                cure(kind, why, hints),
            )
        )

    def generated(self, code: str) -> None:
        self.code.append(code)

    def recompiled(self, reasons: list[str]) -> None:
        frame = _guarded_frame()
        if frame is None or not reasons:
            return
        code, module = frame.f_code, self._module()
        met: set[tuple[Location, ...]] = set()
        # Of each version that there is of the code torch tells one guard: other versions may fail by another one.
        for reason in reasons:
            guard = guards.read(reason, frame.f_locals, frame.f_globals)
            recompile = LoggedRecompile(
                (code.co_filename, code.co_firstlineno), module, guard
            )
            if guard.locations not in met and not (met and recompile.of_size):
                met.add(guard.locations)
                self.recompiles.append(recompile)

    def _module(self) -> str:
        """Return the path of the module whose forward is running; that of the model if none is."""
        modules = compiler_log.called_modules(sys._getframe(1))
        paths = (self._paths.get(id(module)) for module in modules)
        return next((path for path in paths if path is not None), "")


def called_module(frame: FrameType) -> nn.Module | None:
    """Return the module that a frame of torch's `Module._call_impl` calls."""
    if frame.f_code is not nn.Module._call_impl.__code__:
        return None
    module = frame.f_locals.get("self")
    return module if isinstance(module, nn.Module) else None


def _guarded_frame() -> Any:
    """Return the frame that dynamo is about to compile again, from the frames of dynamo itself."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        met = frame.f_locals.get("frame")
        if frame.f_code.co_filename.startswith(_TORCH) and hasattr(met, "f_locals"):
            return met
        frame = frame.f_back
    return None
