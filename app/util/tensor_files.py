"""Load files of tensors as data only, with our own error messages.

torch's own messages advise `weights_only=False`, which executes code in the file; ours never do.
"""

from __future__ import annotations

import io
import json
import re
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from app.util import regular_files
from app.util.errors import CodedError
from app.util.tensors_on_disk import TensorsOnDisk

if TYPE_CHECKING:
    from torch import Tensor

Fault = Literal["unreadable", "damaged", "unsafe"]
# Modules whose functions no weights need.
_OF_THE_SYSTEM = {
    "os",
    "posix",
    "nt",
    "sys",
    "builtins",
    "__builtin__",
    "subprocess",
    "shutil",
    "socket",
    "importlib",
    "runpy",
    "pty",
    "ctypes",
    "code",
    "pickle",
    "webbrowser",
}
INDEX = ".index.json"  # how the name of an index of several files ends
LARGEST_INDEX = 1 << 27  # bytes
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
    _check(path)
    try:
        with warnings.catch_warnings(
            action="ignore"
        ):  # of a pickle's protocol; errors are reported below
            return torch.load(
                path, map_location="cpu", weights_only=True, mmap=mmap or None
            )
    except OSError as error:
        raise _refused(path, error) from error
    except Exception as error:  # damaged and dangerous files raise various errors
        raise _rephrased(path, str(error)) from error


def load_bytes(data: bytes) -> Any:
    """Load what `torch.save` wrote to memory, on the CPU with `weights_only=True`."""
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


class _Nothing:
    """Stands for an object of a file that is no tensor: it ignores what the object would be made of."""

    def __new__(cls, *_arguments: Any, **_named: Any) -> _Nothing:
        return super().__new__(cls)

    def __init__(self, *_arguments: Any, **_named: Any) -> None: ...

    def __setstate__(self, _state: Any) -> None: ...


def load_tensors_alone(path: str | Path) -> tuple[Any, list[str]]:
    """Load a `torch.save` file whose other objects are not made, and return their classes too.

    It is read by torch's own reader of weights, `weights_only=True`, with nothing in the place of each class; none is
    imported or called. Raises UnreadableTensorsError, for a file that names functions of the system, too.
    """
    _check(path)
    try:
        names = get_unsafe_globals_in_checkpoint(path)
        if calls := [
            name for name in names if name.partition(".")[0] in _OF_THE_SYSTEM
        ]:
            raise UnreadableTensorsError(
                f"{path} refers to {calls[0]}; nothing was executed.", "unsafe"
            )
        stand_ins = [
            (dict if name.lower().endswith("dict") else _Nothing, name)
            for name in names
        ]
        with safe_globals(stand_ins), warnings.catch_warnings(action="ignore"):  # type: ignore[arg-type]
            return torch.load(path, map_location="cpu", weights_only=True), names
    except UnreadableTensorsError:
        raise
    except OSError as error:
        raise _refused(path, error) from error
    except Exception as error:
        raise _rephrased(path, str(error)) from error


def save(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write a new file with `torch.save`. Raises OSError."""
    torch.save(dict(tensors), path)


def load_safetensors(path: str | Path) -> dict[str, Tensor]:
    """Load a `.safetensors` file on the CPU, tied tensors under all their names, see `aliases`. Raises
    UnreadableTensorsError."""
    _check(path)
    try:
        tensors: dict[str, Tensor] = load_file(path)
        with safe_open(path, "pt") as file:
            return tensors | {
                name: tensors[original]
                for name, original in aliases(file.metadata(), tensors).items()
            }
    except OSError as error:
        raise _refused(path, error) from error
    except Exception as error:  # a damaged file raises various errors
        reason = (str(error).strip() or type(error).__name__).split("\n")[0].rstrip(".")
        raise UnreadableTensorsError(
            f"{path} is damaged or truncated: {reason}.", "damaged"
        ) from error


def aliases(
    metadata: Mapping[str, str] | None, tensors: Collection[str]
) -> dict[str, str]:
    """Return the names that a file's metadata give to its tensors beside their own, as `safetensors.torch.save_model`
    writes them for tied weights."""
    return {
        name: original
        for name, original in (metadata or {}).items()
        if original in tensors and name not in tensors
    }


def index_in(folder: Path) -> Path | None:
    """Return the index in a folder, that of safetensors if there are several; None without any. Raises OSError."""
    indexes = sorted(
        folder.glob(f"*{INDEX}"),
        key=lambda path: (".safetensors" not in path.name, path.name),
    )
    return indexes[0] if indexes else None


def files_of_index(index: Path) -> dict[str, Path]:
    """Return the file of each tensor, which lies in the index's own folder. Raises OSError, and ValueError for an index
    that is invalid, names files elsewhere, or files that do not exist."""
    if index.stat().st_size > LARGEST_INDEX:
        raise ValueError(f"{index.name} is larger than an index can be")
    content = json.loads(index.read_text("utf-8"))
    names = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(names, dict) or not all(
        isinstance(name, str) for name in names.values()
    ):
        raise ValueError(f"{index.name} has no weight_map of tensors to files")
    if outside := [
        name
        for name in names.values()
        if name in ("", ".", "..") or set(name) & set("/\\:\0")
    ]:
        raise ValueError(
            f"{index.name} names {outside[0]!r}, which is not a file in its own folder; nothing was read"
        )
    files = {key: index.parent / name for key, name in names.items()}
    if missing := sorted({path.name for path in files.values() if not path.is_file()}):
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise ValueError(
            f"{', '.join(missing[:3])}{more}, which {index.name} names, is not in {index.parent}"
        )
    return files


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
    return UnreadableTensorsError(
        f"{path} cannot be read: {error.strerror or error}.", "unreadable"
    )


def _rephrased(path: str | Path, message: str) -> UnreadableTensorsError:
    if "TorchScript" in message:
        explanation = (
            f"{path} is a TorchScript archive, which contains code; none of it was run."
        )
        return UnreadableTensorsError(explanation, "unsafe")
    if named := _GLOBAL.search(message):
        explanation = (
            f"{path} refers to {named[1]}, which is not a tensor; nothing was executed."
        )
        return UnreadableTensorsError(explanation, "unsafe")
    if "zip archive" in message:
        return UnreadableTensorsError(f"{path} is damaged or truncated.", "damaged")
    return UnreadableTensorsError(
        f"{path} is damaged, or was not written by torch.save; nothing was executed.",
        "unsafe",
    )
