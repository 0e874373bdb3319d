"""Graph breaks and recompiles from dynamo's structured log (that of TORCH_TRACE), each with the module called."""

from __future__ import annotations

import json
import logging
import os
import re
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
from app.features.compile.compute.cures import cure
from app.features.compile.compute.guards import FailedGuard
from app.util import user_frames

_LOG = "torch.__trace"
_TORCH = os.path.dirname(torch.__file__)
_AT = re.compile(r"Graph break in user code at (.*):(\d+)\n")
_FRAME = re.compile(r'^  File "([^"]+)", line (\d+), in ', re.MULTILINE)
_KIND = re.compile(
    r"^(?P<kind>\S[^\n]*)\n(?:  Higher Order[^\n]*\n)?  Explanation: (?P<why>.*?)(?=^  Hint:|^  Developer|^\S|\Z)",
    re.MULTILINE | re.DOTALL,
)
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_HINT = re.compile(r"^  Hint: (.*)$", re.MULTILINE)
Location = tuple[str, int]


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


class CompilerLog(logging.Handler):
    """A logging handler for graph breaks and recompiles; `paths` are the paths of modules by identity."""

    def __init__(self, paths: Mapping[int, str]) -> None:
        super().__init__()
        self._paths = paths
        self.breaks: list[LoggedBreak] = []
        self.recompiles: list[LoggedRecompile] = []
        self.code: list[str] = []  # of Inductor

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle dynamo's log, and suppress its warnings about the same breaks."""
        log, compiler = logging.getLogger(_LOG), logging.getLogger("torch._dynamo")
        level = compiler.level
        compiler.setLevel(logging.ERROR)
        log.addHandler(self)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", module=r"torch\._dynamo")
                yield
        finally:
            log.removeHandler(self)
            compiler.setLevel(level)

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record in, on the stack of the call that is compiled."""
        metadata = getattr(record, "metadata", {})
        artifact = metadata.get("artifact") or {}
        payload = getattr(record, "payload", None)
        name = artifact.get("name")
        if "inductor_output_code" in metadata and isinstance(payload, str):
            self.code.append(payload)
        if not isinstance(payload, str) or name not in (
            "dynamo_graph_break_reason",
            "recompile_reasons",
        ):
            return
        try:
            if name == "recompile_reasons":
                self._take_recompile(payload)
            else:
                self._take_break(payload)
        except Exception:  # a record in a form of another torch
            self.handleError(record)

    def _take_break(self, payload: str) -> None:
        at = _AT.search(payload)
        if at is None:
            return
        said, _, stack = payload.partition("\nUser code traceback:\n")
        stack = stack.partition("\nTraceback (most recent")[0]
        frames = [(file, int(line)) for file, line in _FRAME.findall(stack)]
        reason = said.partition("Graph Break Reason: ")[2]
        kind, why = reason.partition("\n")[0], ""
        if described := _KIND.search(reason):
            kind = described["kind"]
            why = _sentence(described["why"])
        hints = _HINT.findall(reason.partition("*** While handling")[0])
        described_so = f"{kind}: {why}" if why else kind
        self.breaks.append(
            LoggedBreak(
                (*frames, (at[1], int(at[2]))),
                self._module(),
                kind,
                described_so.removesuffix("."),
                cure(kind, why, hints),
            )
        )

    def _take_recompile(self, payload: str) -> None:
        reasons = json.loads(payload) if payload.startswith("[") else [payload]
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
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            module = called_module(frame)
            if module is not None and id(module) in self._paths:
                return self._paths[id(module)]
            frame = frame.f_back
        return ""


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


def _sentence(text: str) -> str:
    """Return the first sentence of an explanation, in one line."""
    line = " ".join(_ADDRESS.sub("", text).strip().partition("\n\n")[0].split())
    return re.split(r"(?<=[^.])\. (?=[A-Z])", line)[0]
