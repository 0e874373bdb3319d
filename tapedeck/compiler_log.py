"""Graph breaks and recompiles from dynamo's structured log, that of TORCH_TRACE, as texts."""

from __future__ import annotations

import json
import logging
import re
import sys
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import nn

_LOG = "torch.__trace"
_AT = re.compile(r"Graph break in user code at (.*):(\d+)\n")
_FRAME = re.compile(r'^  File "([^"]+)", line (\d+), in ', re.MULTILINE)
_KIND = re.compile(
    r"^(?P<kind>\S[^\n]*)\n(?:  Higher Order[^\n]*\n)?  Explanation: (?P<why>.*?)(?=^  Hint:|^  Developer|^\S|\Z)",
    re.MULTILINE | re.DOTALL,
)
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_HINT = re.compile(r"^  Hint: (.*)$", re.MULTILINE)
Location = tuple[str, int]


class BreakText(NamedTuple):
    """A graph break as torch tells it; `frames` are file and line from the outermost call inwards."""

    frames: tuple[Location, ...]
    kind: str
    explanation: str
    hints: tuple[str, ...]


class CompilerLog(logging.Handler):
    """A handler that calls `broke` and `recompiled`, on the stack of the call that is compiled."""

    def attach(self) -> None:
        """Have torch tell this handler what it compiles."""
        logging.getLogger(_LOG).addHandler(self)

    def detach(self) -> None:
        logging.getLogger(_LOG).removeHandler(self)

    def broke(self, text: BreakText) -> None:
        """Take a graph break."""

    def recompiled(self, reasons: list[str]) -> None:
        """Take a recompile: a failed guard for each version that there is of the code."""

    def generated(self, code: str) -> None:
        """Take code of Inductor."""

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record in."""
        metadata = getattr(record, "metadata", {})
        payload = getattr(record, "payload", None)
        if not isinstance(payload, str):
            return
        name = (metadata.get("artifact") or {}).get("name")
        try:
            if "inductor_output_code" in metadata:
                self.generated(payload)
            elif name == "recompile_reasons":
                listed = payload.startswith("[")
                self.recompiled(json.loads(payload) if listed else [payload])
            elif name == "dynamo_graph_break_reason":
                text = parsed(payload)
                if text is not None:
                    self.broke(text)
        except Exception:  # a record in a form of another torch
            self.handleError(record)


def parsed(payload: str) -> BreakText | None:
    """Parse the record of a graph break; None for one without a line."""
    at = _AT.search(payload)
    if at is None:
        return None
    message, _, stack = payload.partition("\nUser code traceback:\n")
    stack = stack.partition("\nTraceback (most recent")[0]
    frames = [(file, int(line)) for file, line in _FRAME.findall(stack)]
    reason = message.partition("Graph Break Reason: ")[2]
    kind, why = reason.partition("\n")[0], ""
    if described := _KIND.search(reason):
        kind = described["kind"]
        why = _sentence(described["why"])
    hints = _HINT.findall(reason.partition("*** While handling")[0])
    return BreakText((*frames, (at[1], int(at[2]))), kind, why, tuple(hints))


def called_modules(frame: FrameType | None) -> list[nn.Module]:
    """Return the modules that are called on a stack, innermost first."""
    from torch import nn

    call = nn.Module._call_impl.__code__
    modules = []
    while frame is not None:
        if frame.f_code is call and isinstance(
            module := frame.f_locals.get("self"), nn.Module
        ):
            modules.append(module)
        frame = frame.f_back
    return modules


def called_path() -> str:
    """Return the path of the innermost module that is called, in the outermost; "" if there is one alone."""
    modules = called_modules(sys._getframe(1))
    for outer in reversed(modules):
        for path, module in outer.named_modules():
            if module is modules[0]:
                return path.replace("_orig_mod.", "").removesuffix("_orig_mod")
    return ""


def _sentence(text: str) -> str:
    """Return the first sentence of an explanation, in one line."""
    line = " ".join(_ADDRESS.sub("", text).strip().partition("\n\n")[0].split())
    return re.split(r"(?<=[^.])\. (?=[A-Z])", line)[0]
