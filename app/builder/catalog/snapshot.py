"""The catalog as data: the bundled snapshot, or one of another version of torch.

Introspection needs torch, so a separate process does it, and the result is cached.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
from typing import Any

import msgspec

from app.util import atomic, user_folders
from app.util.errors import CodedError
from app.util.resources import path as resource_path
from app.util.resources import python_path

BUNDLED = "catalog.json"


class TorchUnreadableError(CodedError, RuntimeError):
    """The installed torch could not be introspected; the text has its error."""

    code = "torch-unreadable"


def installed_torch() -> str:
    """Return the version of the torch distribution without its local part, "" for none. Does not import torch."""
    # As importlib.metadata finds it, whose import would take longer than all else that is done for the catalog.
    for folder in sys.path:
        with contextlib.suppress(OSError):
            for name in os.listdir(folder or "."):
                if name.startswith("torch-") and name.endswith(".dist-info"):
                    return (
                        name.removeprefix("torch-")
                        .removesuffix(".dist-info")
                        .partition("+")[0]
                    )
    from importlib import (
        metadata,
    )  # torch without a dist-info folder, such as an editable install

    try:
        return metadata.version("torch").partition("+")[0]
    except metadata.PackageNotFoundError:
        return ""


def of_installed_torch() -> dict[str, Any]:
    """Return the data for `catalog.load`: bundled for that version of torch, else cached or introspected (seconds).

    Raises TorchUnreadableError.
    """
    data = resource_path(BUNDLED).read_bytes()
    raw: dict[str, Any] = msgspec.json.decode(data)
    version = installed_torch()
    if raw["torch"] == version:
        return raw
    # The cache key includes the bundled data, as the correction tables belong to this version of the program.
    cache_file = (
        user_folders.cache()
        / f"catalog-{version}-{hashlib.sha256(data).hexdigest()[:12]}.json"
    )
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        raw = msgspec.json.decode(cache_file.read_bytes())
        if raw["torch"] == version and raw["ops"]:
            return raw
    data = _read_off()
    with contextlib.suppress(
        OSError
    ):  # without a cache it is introspected again next time
        cache_file.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_bytes(cache_file, data)
    raw = msgspec.json.decode(data)
    return raw


def _read_off() -> bytes:
    """Introspect torch in a separate process."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "app.builder.catalog.introspect", "--print"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": python_path()},
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        check=False,
    )
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        reason = lines[-1] if lines else f"it ended with exit code {done.returncode}"
        raise TorchUnreadableError(
            f"the operations of the installed torch could not be read: {reason}"
        )
    return done.stdout
