"""The source of a model to import, and errors and remarks of an import."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from msgspec import Struct

from app.builder.literals import DTYPES
from app.engine.protocol import MAIN, Request
from app.project.project import Project
from app.sources.spec import SourceError, SourceSpec
from app.sources.spec import parse_input as parse_named
from app.util.errors import CodedError

_INPUT = re.compile(r"(?P<sizes>\d+(?:x\d+)*)(?::(?P<dtype>[a-z]+\d*))?")
CHECKING = "Checking against the model"  # how the words on a comparison with the live model begin
UNCHECKED = "The drawing was not checked against the model."  # while, or since, the comparison has not ended


class ModelImportError(CodedError, ValueError):
    """A model that cannot be imported; the message says why, and `code` is the kind of failure, for which
    `import_advice` has cures."""

    def __init__(self, message: str, code: str = "failed") -> None:
        super().__init__(message)
        self.code = code


class ImportRequestError(ModelImportError):
    """Invalid arguments: no source, no input, no such file."""

    exit_code = 2

    def __init__(self, message: str, code: str = "request") -> None:
        super().__init__(message, code)


class ImportTimeoutError(ModelImportError):
    """It took longer than it may."""

    def __init__(self, message: str, code: str = "timeout") -> None:
        super().__init__(message, code)


class ModelInput(Struct, frozen=True):
    """An example of one argument of `forward`: its shape with the batch first, and its dtype. Those of a source that
    `tapedeck draw` takes may have names."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    name: str = ""
    values: str = ""


class ModelSource(Struct, frozen=True):
    """The source of a model. `file` is empty for one of torchvision's; `call` means that `name` is a function. `spec`
    is any other source, whose modules are looked for in `folder` first; of it `part` is the path of the module that is
    imported, "" for the whole model."""

    file: str
    name: str
    call: bool = False
    spec: SourceSpec | None = None
    folder: str = ""
    part: str = ""

    @property
    def own_spec(self) -> SourceSpec:
        """The source as any verb takes it."""
        if self.spec is not None:
            return self.spec.as_run
        return SourceSpec(
            "file" if self.file else "torchvision", self.file, self.name, self.call
        )

    def __str__(self) -> str:
        if self.spec is not None:
            return f"{self.part} of {self.spec}" if self.part else str(self.spec)
        return f"{self.file or 'torchvision'}:{self.name}{'()' if self.call else ''}"


class KnownModel(Struct, frozen=True):
    """A model of torchvision: name, kind of task, and default input."""

    name: str
    kind: str
    input: ModelInput


class ListModels(Request[tuple[KnownModel, ...]], frozen=True):
    """List torchvision's models. Raises ModelImportError without torchvision; send it to a separate engine."""

    lane: ClassVar[str] = MAIN


class ImportModel(Request[Project], frozen=True):
    """Import a model as a project, with its files in `folder`; a user's own file runs only in a separate engine.

    Without `keep_weights` the project gets only the model's buffers; with `take_inits` its layers are initialised like
    those of the model. Progress is ImportStep and, of a large model if `early`, EarlyDrawing. Raises ModelImportError.
    """

    lane: ClassVar[str] = MAIN
    source: ModelSource
    arguments: Mapping[str, Any]
    inputs: tuple[ModelInput, ...] = ()
    pretrained: bool = False
    keep_weights: bool = True
    take_inits: bool = False
    early: bool = False
    folder: str = ""
    example: str = ""


class ImportStep(Struct, frozen=True):
    """What an import is at; `checking` once the drawing is compared with the model."""

    words: str
    checking: bool = False


class EarlyDrawing(Struct, frozen=True):
    """The drawing of a model that it is not compared with yet."""

    project: Project


def parse_source(text: str) -> ModelSource:
    """`torchvision:resnet18`, a part of it as `torchvision:resnet18.layer1`, `file.py:Class` or `file.py:make_model()`.
    Raises ModelImportError.

    >>> str(parse_source("nets/mine.py:make()")), parse_source("torchvision:resnet18.layer1").name
    ('nets/mine.py:make()', 'resnet18.layer1')
    """
    file, colon, name = text.rpartition(":")
    call = name.endswith("()")
    name = name.removesuffix("()")
    root, *parts = name.split(".") if file == "torchvision" else [name]
    if (
        not colon
        or not root.isidentifier()
        or not all(segment.replace("_", "a").isalnum() for segment in parts)
    ):
        raise ImportRequestError(
            f"{text!r} does not name a model; write torchvision:resnet18, file.py:Class or file.py:make_model()"
        )
    if file == "torchvision":
        return ModelSource("", name)
    if not file.endswith(".py"):
        raise ImportRequestError(f"{file} is neither torchvision nor a Python file")
    return ModelSource(file, name, call)


def parse_input(text: str) -> ModelInput:
    """`1x3x32x32`, or `1x16:int64`. Raises ModelImportError.

    >>> parse_input("1x3x32x32"), parse_input("2x16:int64").dtype
    (ModelInput(shape=(1, 3, 32, 32), dtype='', name='', values=''), 'int64')
    """
    match = _INPUT.fullmatch(text.strip().replace("×", "x"))
    if not match:
        raise ImportRequestError(
            f"{text!r} is not an input; write its sizes with the batch first, as 1x3x32x32 or 1x16:int64",
            "input",
        )
    dtype = match["dtype"] or ""
    sizes = tuple(map(int, match["sizes"].split("x")))
    if 0 in sizes:
        raise ImportRequestError(
            f"{text!r} has a size of 0; sizes must be at least 1", "input"
        )
    if (dtype and dtype not in DTYPES) or not all(0 < size <= 2**31 for size in sizes):
        raise ImportRequestError(f"{text!r} has an invalid size or dtype", "input")
    return ModelInput(sizes, dtype)


def described(texts: Iterable[str]) -> tuple[ModelInput, ...]:
    """Parse inputs that may have names and values, as for `tapedeck draw`. Raises ImportRequestError."""
    try:
        inputs = tuple(map(parse_named, texts))
    except SourceError as error:
        raise ImportRequestError(str(error), "input") from error
    return tuple(
        ModelInput(parsed.shape, parsed.dtype, parsed.name, parsed.values)
        for parsed in inputs
    )


def is_plain(texts: Iterable[str]) -> bool:
    """Return whether inputs are sizes and dtypes alone, in the order of forward's arguments.

    >>> is_plain(["1x16:int64"]), is_plain(["ids=1x16"]), is_plain(["1x16:int64:0..9"])
    (True, False, False)
    """
    return not any("=" in text or text.count(":") > 1 for text in texts)


def parse_arguments(text: str) -> dict[str, Any]:
    """Parse the constructor's arguments from JSON: `{"num_classes": 10}`. Raises ModelImportError."""
    try:
        arguments = json.loads(text or "{}")
    except ValueError as error:
        raise ImportRequestError(
            f"the arguments are not valid JSON: {error}", "arguments"
        ) from error
    if not isinstance(arguments, dict):
        raise ImportRequestError(
            'the arguments must be a JSON object, such as {"num_classes": 10}',
            "arguments",
        )
    return arguments


def names_in(text: str) -> tuple[str, ...]:
    """Return the classes of a file, and its functions without required arguments, from its source; nothing runs."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise ModelImportError(
            f"the file is not valid Python: {error}", "syntax"
        ) from error
    names = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.FunctionDef) and len(node.args.args) == len(
            node.args.defaults
        ):
            names.append(f"{node.name}()")
    return tuple(names)


def remarks(project: Project) -> tuple[str, ...]:
    """Return the remarks of an imported project about parts that were not traced call by call."""
    return tuple(project.notes.splitlines()[1:])
