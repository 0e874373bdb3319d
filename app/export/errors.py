"""Why something cannot be exported: errors that need no torch."""

from __future__ import annotations

from app.util.errors import CodedError


class WeightsError(CodedError):
    """Weights that cannot be written or read; the text says which file and why."""

    exit_code = 2
