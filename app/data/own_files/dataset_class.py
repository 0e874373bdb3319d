"""The file of a user's Dataset class, and whether it may run; `own_dataset` creates the dataset."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from app.data.config import DataConfig
from app.data.spec import DataError
from app.source import layer_files
from app.source.layer_files import LayerFile
from app.util import regular_files
from app.util.frozen import FrozenMap

KEY = "file.dataset"
LONGEST = 2_000_000
_PACKAGES = (
    "torch.utils.data",
    "torchvision.datasets",
)  # where a class that is derived from is a Dataset
_NO_DATASETS = {"Sampler", "DataLoader"}


class NotTrustedError(DataError):
    """Raised for a Dataset file that was not reviewed and trusted yet."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path.name} is not trusted yet, so none of its code was run. Review it, then trust it."
        )


def file_of(path: Path) -> LayerFile:
    """Return the current file. Raises DataError."""
    if not (path.stem.isascii() and path.stem.isidentifier()) or path.suffix != ".py":
        raise DataError(
            f"{path.name} cannot be imported: its name must be a Python identifier, such as my_data.py."
        )
    try:
        regular_files.check(path)
        with path.open(encoding="utf-8") as file:
            text = file.read(LONGEST + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{str(path).replace(chr(0), '␀')} cannot be read: {error}"
        ) from error
    if len(text) > LONGEST:
        raise DataError(
            f"{path.name} is longer than {LONGEST:,} characters, which is too long."
        )
    return LayerFile.from_text(path.stem, text, str(path))


class DatasetCall(Struct, frozen=True):
    """A class and the literals that it is constructed with."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: FrozenMap[str, Any] = FrozenMap()

    @property
    def code(self) -> str:
        """The call as Python text; its arguments are literals."""
        arguments = [
            *map(repr, self.args),
            *(f"{name}={value!r}" for name, value in self.kwargs.items()),
        ]
        return f"{self.name}({', '.join(arguments)})"

    def __str__(self) -> str:
        return self.code.removesuffix("()")


def parse_call(text: str) -> DatasetCall:
    """Parse the name of a class, with the arguments of its constructor where it needs some. Raises DataError.

    >>> str(parse_call('Series("root", train=True)')), str(parse_call("Series()"))
    ("Series('root', train=True)", 'Series')
    """
    text = text.strip()
    if not text or text.isidentifier():
        return DatasetCall(text)
    try:
        node = ast.parse(text, mode="eval").body
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            raise ValueError(text)
        args = tuple(map(ast.literal_eval, node.args))
        kwargs = {
            str(keyword.arg): ast.literal_eval(keyword.value)
            for keyword in node.keywords
            if keyword.arg
        }
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise DataError(
            f'{text}: write a class, or a class with arguments that are literals, such as Series("root", train=True).'
        ) from error
    if len(kwargs) != len(node.keywords):
        raise DataError(f"{text}: write the arguments one by one, without **.")
    return DatasetCall(node.func.id, args, FrozenMap(kwargs))


def trusted(config: DataConfig) -> list[str]:
    """Return the hash of a config's file if it may run; passed to worker processes."""
    try:
        sha256 = file_of(Path(config.path)).sha256 if config.source == KEY else ""
    except DataError:
        return []
    return [sha256] if sha256 and layer_files.allowed(sha256) else []


def classes_in(text: str) -> tuple[str, ...]:
    """Return the names of the Dataset classes of a file in their order, without running it; none if it has an error.

    Those are classes derived from one of torch.utils.data or torchvision.datasets, from one of the file, or from a
    class whose name ends in Dataset.

    >>> classes_in("from torch.utils import data\\nclass A(data.Dataset): ...\\nclass B(A): ...\\nclass C: ...")
    ('A', 'B')
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    names, class_names = dict[str, str](), list[str]()
    for node in _statements(tree.body):
        if isinstance(node, ast.Import):
            names.update(
                {alias.asname: alias.name for alias in node.names if alias.asname}
            )
        elif isinstance(node, ast.ImportFrom):
            names.update(
                {
                    alias.asname or alias.name: f"{node.module}.{alias.name}"
                    for alias in node.names
                }
            )
        elif isinstance(node, ast.ClassDef):
            bases = [_dotted(base, names) for base in node.bases]
            if any(base in class_names or _is_dataset(base) for base in bases):
                class_names.append(node.name)
    return tuple(dict.fromkeys(class_names))


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, with those in conditions and in `try`."""
    for node in body:
        yield node
        for block in (
            ("body", "orelse", "handlers", "finalbody")
            if isinstance(node, ast.If | ast.Try)
            else ()
        ):
            for statement in getattr(node, block, ()):
                yield from _statements(
                    statement.body
                    if isinstance(statement, ast.ExceptHandler)
                    else [statement]
                )


def _dotted(base: ast.expr, names: dict[str, str]) -> str:
    """Return the full name of a base class, as far as the imports tell; of `Dataset[int]` that of Dataset."""
    written = ast.unparse(base.value if isinstance(base, ast.Subscript) else base)
    first, dot, rest = written.partition(".")
    return f"{names.get(first, first)}{dot}{rest}"


def _is_dataset(name: str) -> bool:
    package, _, last = name.rpartition(".")
    package_matches = any(
        package == dataset_package or package.startswith(f"{dataset_package}.")
        for dataset_package in _PACKAGES
    )
    return last.endswith("Dataset") or (
        package_matches and last not in _NO_DATASETS and not last.endswith("Sampler")
    )
