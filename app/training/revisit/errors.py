"""Errors of re-living a run."""

from __future__ import annotations

from app.util.errors import CodedError


class ReliveError(CodedError, RuntimeError):
    """Raised for a step that cannot be re-lived; the message says why."""


class ReliveCancelledError(CodedError):
    """Raised where re-living was cancelled."""
