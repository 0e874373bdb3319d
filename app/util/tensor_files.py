"""Load files of tensors as data only, with our own error messages.

torch's own messages advise `weights_only=False`, which executes code in the file; ours never do.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from app.util import regular_files
from app.util.errors import CodedError
from app.util.tensors_on_disk import TensorsOnDisk

if TYPE_CHECKING:
    from torch import Tensor

Fault = Literal["unreadable", "damaged", "unsafe"]
_GLOBAL = re.compile(r"(?:GLOBAL|class|function) (\w+(?:\.\w+)*)")


class UnreadableTensorsError(CodedError):
    """A file of tensors that cannot be loaded. The text is one sentence without a cure, which depends on the use.

    `fault` is "unreadable" where the system refuses it, "damaged" where a part is missing, else "unsafe".
    """

    def __init__(self, message: str, fault: Fault) -> None:
        super().__init__(message)
        self.fault = fault


def load(path: str | Path, mmap: bool = False) -> Any:
    """Load a `torch.save` file on the CPU with `weights_only=True`. Raises UnreadableTensorsError.

    With `mmap` tensors are read lazily.
    """
    import torch

    _check(path)
    try:
        with warnings.catch_warnings(action="ignore"):  # of a pickle's protocol; errors are reported below
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap or None)
    except OSError as error:
        raise _refused(path, error) from error
    except Exception as error:  # damaged and dangerous files raise various errors
        raise _rephrased(path, str(error)) from error


def save(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write a new file with `torch.save`. Raises OSError."""
    import torch

    torch.save(dict(tensors), path)


def load_safetensors(path: str | Path) -> dict[str, Tensor]:
    """Load a `.safetensors` file on the CPU. Raises UnreadableTensorsError."""
    from safetensors.torch import load_file

    _check(path)
    try:
        return load_file(path)
    except OSError as error:
        raise _refused(path, error) from error
    except Exception as error:  # a damaged file raises various errors
        reason = (str(error).strip() or type(error).__name__).split("\n")[0].rstrip(".")
        raise UnreadableTensorsError(f"{path} is damaged or truncated: {reason}.", "damaged") from error


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = load(path)
    except UnreadableTensorsError as error:
        raise OSError(str(error)) from error
    return tensors


TensorsOnDisk.read = staticmethod(_tensors)


def _check(path: str | Path) -> None:
    try:
        size = regular_files.check(path)
    except OSError as error:
        raise _refused(path, error) from error
    if not size:
        raise UnreadableTensorsError(f"{path} is empty.", "damaged")


def _refused(path: str | Path, error: OSError) -> UnreadableTensorsError:
    return UnreadableTensorsError(f"{path} cannot be read: {error.strerror or error}.", "unreadable")


def _rephrased(path: str | Path, words: str) -> UnreadableTensorsError:
    if "TorchScript" in words:
        what = f"{path} is a TorchScript archive, which contains code; none of it was run."
        return UnreadableTensorsError(what, "unsafe")
    if named := _GLOBAL.search(words):
        what = f"{path} refers to {named[1]}, which is not a tensor; nothing was executed."
        return UnreadableTensorsError(what, "unsafe")
    if "zip archive" in words:
        return UnreadableTensorsError(f"{path} is damaged or truncated.", "damaged")
    return UnreadableTensorsError(
        f"{path} is damaged, or was not written by torch.save; nothing was executed.", "unsafe"
    )
