"""Availability of ONNX export, which needs additional packages."""

from __future__ import annotations

from importlib.util import find_spec

PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def onnx_missing() -> str:
    """Return why ONNX cannot be exported and how to install it, "" if it can. Imports none of the packages."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if not missing:
        return ""
    verb = "are" if len(missing) > 1 else "is"
    return f"ONNX needs {', '.join(missing)}, which {verb} not installed: pip install tapedeck-torch[onnx]"
