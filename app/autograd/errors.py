"""Errors of a capture. They hold no tensor, so they can be sent to another process."""

from __future__ import annotations

from app.util.errors import CodedError


class CaptureError(CodedError, RuntimeError):
    """A graph could not be captured; the text says why and what to do."""


class CaptureCancelledError(CaptureError):
    """The capture was cancelled."""


class NoGraphError(CaptureError):
    """The forward pass ran, but nothing in it requires a gradient."""


class ForwardError(CaptureError):
    """The net or its loss raised. `node` and `line` locate it in the drawing and in the generated text, if known."""

    def __init__(
        self, message: str, node: str | None, line: int | None, traceback_text: str
    ) -> None:
        super().__init__(message)
        self.node = node
        self.line = line
        self.traceback_text = traceback_text
