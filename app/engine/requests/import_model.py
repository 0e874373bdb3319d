"""The source of a model to import, and errors and remarks of an import."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from msgspec import Struct, field

from app.engine.protocol import MAIN, Request
from app.project.project import Project
from app.sources.spec import InputSpec, SourceError, SourceSpec, parse_input
from app.util.errors import CodedError

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


class KnownModel(Struct, frozen=True):
    """A model of torchvision: name, kind of task, and default input."""

    name: str
    kind: str
    input: InputSpec


class ListModels(Request[tuple[KnownModel, ...]], frozen=True):
    """List torchvision's models. Raises ModelImportError without torchvision; send it to a separate engine."""

    lane: ClassVar[str] = MAIN


class ImportModel(Request[Project], frozen=True):
    """Import a model as a project, with its files in `folder`; a user's own file runs only in a separate engine.

    Without `keep_weights` the project gets only the model's buffers; with `take_inits` its layers are initialised like
    those of the model. Modules of its source are found from the folder `where`. One that was `opened` is made as it was
    then; of it only the module at `part` is imported, "" for the whole model. `sha256` is the digest of the files that
    the user reviewed. Progress is ImportStep and, of a large model if `early`, EarlyDrawing. Raises ModelImportError.
    """

    lane: ClassVar[str] = MAIN
    source: SourceSpec
    arguments: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[InputSpec, ...] = ()
    pretrained: bool = False
    keep_weights: bool = True
    take_inits: bool = False
    early: bool = False
    folder: str = ""
    example: str = ""
    where: str = ""
    opened: bool = False
    part: str = ""
    sha256: str = ""

    @property
    def named_inputs(self) -> bool:
        """Return whether its inputs are more than sizes and dtypes in the order of forward's arguments."""
        return any(described.name or described.values for described in self.inputs)

    @property
    def runs_file(self) -> bool:
        """Return whether the model is made by its file alone, and called with tensors in this order."""
        given = bool(self.inputs) and not self.named_inputs
        return self.source.kind == "file" and given and not self.opened

    @property
    def name(self) -> str:
        """The name of the class, the function or the part."""
        return self.part or self.source.name or self.source.where

    @property
    def model(self) -> str:
        """The source, and the part of it."""
        return f"{self.part} of {self.source}" if self.part else str(self.source)


class ImportStep(Struct, frozen=True):
    """What an import is at; `checking` once the drawing is compared with the model."""

    words: str
    checking: bool = False


class EarlyDrawing(Struct, frozen=True):
    """The drawing of a model that it is not compared with yet."""

    project: Project


def parse_inputs(texts: Iterable[str]) -> tuple[InputSpec, ...]:
    """Parse example inputs. Raises ImportRequestError.

    >>> parse_inputs(["1x3x32x32", "ids=2x16:int64"])[1].name
    'ids'
    """
    try:
        inputs = tuple(map(parse_input, texts))
    except SourceError as error:
        raise ImportRequestError(str(error), "input") from error
    for described in inputs:
        if 0 in described.shape:
            raise ImportRequestError(
                f"{described} has a size of 0; sizes must be at least 1", "input"
            )
    return inputs


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
