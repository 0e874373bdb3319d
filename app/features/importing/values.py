"""The source of a model to import, and errors and remarks of an import."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from msgspec import Struct

from app.engine.protocol import MAIN, Request
from app.project.project import Project
from app.sources.spec import InputSpec, SourceError, SourceSpec, parse_input
from app.util.errors import CodedError

CHECKING = "Checking against the model"  # how the words on a comparison with the live model begin
UNCHECKED = "The drawing was not checked against the model."  # while, or since, the comparison has not ended


class ModelImportError(CodedError, ValueError):
    """A model that cannot be imported; the message says why, and `code` is the kind of failure, for which
    `cure_of` has cures."""

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
    arguments: Mapping[str, Any] = {}
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


def remarks(project: Project) -> tuple[str, ...]:
    """Return the remarks of an imported project about parts that were not traced call by call."""
    return tuple(project.notes.splitlines()[1:])


# --- Cures, by the code of the error

_NAMES = "Check the argument names against its constructor."

# By the code of a refusal: the entry that it is about, and the cure.
_CURES = {
    "not_downloaded": ("pretrained", ""),
    "constructor": ("arguments", _NAMES),
    "arguments": ("arguments", "Pass them by keyword."),
    "inputs": ("inputs", "Enter one shape for each argument of forward."),
    "input_not_accepted": ("inputs", "Enter a shape that the model supports."),
    "timeout": (
        "",
        "Choose a smaller model, or make the file do less when it is imported.",
    ),
    "relative_import": (
        "",
        "Give the file's folder a name of letters, digits and _, as packages have.",
    ),
    "module_not_found": (
        "",
        "Install the package in Tapedeck's environment, or put the module next to the file.",
    ),
    "asks_for_input": (
        "",
        "An imported file cannot read input: remove calls of input().",
    ),
    "no_cuda": (
        "",
        "Make the model on the CPU; its device is chosen when it is trained.",
    ),
    "another_net": (
        "",
        "Import a part of the model without that module, or write it with other operations.",
    ),
    "data_dependent": (
        "",
        "Import a submodule that has no such step, or write the step with tensor operations.",
    ),
    "not_followed": ("", "Check the inputs, or import a smaller part of the model."),
    "not_written": (
        "",
        "Free some disk space, or import the model without its weights.",
    ),
}
_OPTIONS = {
    "arguments": """--args '{"name": value}'""",
    "inputs": "--input 1x3x32x32, repeated for each of them",
}


def cure_of(error: BaseException) -> tuple[str, str]:
    """Return the entry that an error is about, and the cure; both may be empty.

    >>> cure_of(ModelImportError("net.py: ModuleNotFoundError: No module named 'einops'", "module_not_found"))[1]
    "Install the package in Tapedeck's environment, or put the module next to the file."
    """
    code = "not_written" if isinstance(error, OSError) else getattr(error, "code", "")
    return _CURES.get(code, ("", ""))


def with_cure(error: ModelImportError) -> str:
    """Format an error with its cure and the command line option concerned."""
    message, (entry, cure) = str(error), cure_of(error)
    ended = message if message.endswith(".") or not cure else f"{message}."
    option = f" ({_OPTIONS[entry]})" if cure and entry in _OPTIONS else ""
    return f"{ended} {cure.removesuffix('.')}{option}." if cure else message
