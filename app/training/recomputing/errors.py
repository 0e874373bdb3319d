"""Errors of re-living a run."""

from __future__ import annotations

from app.util.errors import CodedError


class RecomputeError(CodedError, RuntimeError):
    """Raised for a step that cannot be recomputed; the message says why."""

    exit_code = 2


class RecomputeCancelledError(CodedError):
    """Raised where re-living was cancelled."""
