"""The text that names a model, and those that describe its example inputs, as values. Nothing is imported or run."""

from __future__ import annotations

import json
import re
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from app.source.interface import Shape, Text
from app.util.errors import CodedError

COLLECTIONS = (
    "torchvision",
    "timm",
    "hf",
    "diffusers",
)  # of installed packages: no code of the user's own
FILES = (
    "pt2",
    "onnx",
)  # graphs that are drawn as their files describe them; a .pt2 can be run too
FORMS = (
    "package.module:Class, module:factory(), file.py:Class, torchvision:resnet18, timm:NAME, hf:NAME_OR_FOLDER, "
    "diffusers:Class, FILE.pt2 or FILE.onnx"
)
EXAMPLES = (".pt", ".npz", ".safetensors")  # files of inputs
BATCH = ".batch.pt"  # how a file of a batch of data ends, with its fields as `inputs` and as `targets`
DTYPES = (
    "float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64 complex128"
).split()
_NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
_INPUT = re.compile(
    r"(?:(?P<name>[A-Za-z_]\w*(?:\.\w+|\[\d+\])*)=)?"
    r"(?P<sizes>\d+(?:[x×]\d+)*|scalar)"
    r"(?::(?P<dtype>[a-z]+\d*))?"
    rf"(?::(?P<values>arange|{_NUMBER}(?:\.\.{_NUMBER})?))?"
)
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
ARANGE = "arange"
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


class SourceError(CodedError, ValueError):
    """A model that is missing, cannot be built or does not accept its inputs; the message says which, and the cure."""

    exit_code = 2


class SourceNameError(SourceError):
    """A text that names no model, or describes no input."""


class ModelRaisedError(SourceError):
    """Code of a model that raised, ended its process, or took too long; the message says what, and where."""

    exit_code = 1


class ArgumentsError(SourceError):
    """Arguments that are no JSON object, or that a class or a function cannot be called with; the message says why."""


class InputsNeededError(SourceError):
    """Inputs that cannot be proposed; `names` are the arguments of forward that must be given, as far as known, and
    `guessed` a description of each to begin with."""

    def __init__(
        self, message: str, names: tuple[str, ...] = (), guessed: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.names, self.guessed = names, guessed


class SourceSpec(Struct, frozen=True):
    """`kind` is "file", "module", one of `COLLECTIONS` or `FILES`, or the name of an installed adapter; `where` is the
    file or the dotted module, `name` the class, function or model in it, which is called if `call`. One of `FILES` has
    no name, and is loaded to be run if `call`."""

    kind: str
    where: str
    name: str
    call: bool = False

    @property
    def own_code(self) -> bool:
        """Return whether making it runs code that the user has to trust."""
        return self.kind not in COLLECTIONS and not self.looked_at

    @property
    def looked_at(self) -> bool:
        """Return whether its graph is drawn as its file describes it, without running anything."""
        return self.kind in FILES and not self.call

    @property
    def as_run(self) -> SourceSpec:
        """Return a copy whose model is run: a .pt2 is then loaded instead of displayed."""
        return replace(self, call=True) if self.kind == "pt2" else self

    def __str__(self) -> str:
        if self.kind in FILES:
            return self.where
        return f"{self.where or self.kind}:{self.name}{'()' if self.call else ''}"


class InputSpec(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One tensor among the arguments of `forward`.

    `dtype` is "" for that of the model's weights. `name` is empty for a positional argument; it may lead into a
    dictionary (`batch.ids`), a tuple (`state.0`) or a list (`boxes[0]`). `values` are a number, the bounds of a range,
    both included (`0..9`; `9..1` in falling order, as lengths of sequences are), `ARANGE` for positions along the last
    axis, or "" for what fits the model.
    """

    shape: Shape
    dtype: Text = ""
    name: Text = ""
    values: Text = ""

    def __str__(self) -> str:
        sizes = "x".join(map(str, self.shape)) or "scalar"
        ends = [suffix for suffix in (self.dtype, self.values) if suffix]
        return ":".join([f"{self.name}{'=' * bool(self.name)}{sizes}", *ends])

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The first and the last of its values, None where none are given as numbers."""
        if not self.values or self.values == ARANGE:
            return None
        first, _, last = self.values.partition("..")
        return float(first), float(last or first)

    @property
    def steps(self) -> tuple[str | int | tuple[int], ...]:
        """The name of the argument, then the way into it: a key of a dictionary, the place in a tuple as a number, and
        that in a list as a tuple of one number.

        >>> InputSpec((1,), name="batch.ids[0].1").steps
        ('batch', 'ids', (0,), 1)
        """
        first = re.match(r"\w*", self.name)
        assert first is not None
        steps: list[str | int | tuple[int]] = [first[0]]
        for key, position in _STEP.findall(self.name[first.end() :]):
            steps.append(
                (int(position),) if position else int(key) if key.isdecimal() else key
            )
        return tuple(steps)


class AskedModel(Struct, frozen=True):
    """A model as typed: `source` and each of `inputs` as below, `arguments` of its constructor as JSON.
    `trust` says that its code was reviewed, `example` is a text for `parse_example`. Files and modules are found from
    `folder`, "" for the current one."""

    source: str
    arguments: str = ""
    inputs: tuple[str, ...] = ()
    train: bool = False
    meta: bool = False
    trust: bool = False
    folder: str = ""
    example: str = ""


def parse_source(text: str) -> SourceSpec:
    """Parse the name of a source. Raises SourceNameError.

    >>> parse_source("nets/mine.py:Net"), parse_source("timm:resnet18").kind
    (SourceSpec(kind='file', where='nets/mine.py', name='Net', call=False), 'timm')
    >>> parse_source("package.nets:make()")
    SourceSpec(kind='module', where='package.nets', name='make', call=True)
    """
    kind, colon, rest = text.partition(":")
    if (
        colon
        and rest
        and kind.isidentifier()
        and (kind in COLLECTIONS or kind in adapters())
    ):
        return SourceSpec(kind, "", rest)
    for kind in FILES:
        if text.endswith(f".{kind}") and text != f".{kind}":
            return SourceSpec(kind, text, "")
    where, colon, name = text.rpartition(":")
    call = name.endswith("()")
    name = name.removesuffix("()")
    if colon and _DOTTED.fullmatch(name):
        if where.endswith(".py"):
            return SourceSpec("file", where, name, call)
        if _DOTTED.fullmatch(where):
            return SourceSpec("module", where, name, call)
    raise SourceNameError(f"{text!r} does not name a model; write {FORMS}")


def parse_arguments(text: str) -> dict[str, Any]:
    """Parse the constructor's arguments from JSON: `{"num_classes": 10}`. Raises ArgumentsError."""
    try:
        arguments = json.loads(text or "{}")
    except ValueError as error:
        raise ArgumentsError(f"the arguments are not valid JSON: {error}") from error
    if not isinstance(arguments, dict):
        raise ArgumentsError(
            'the arguments must be a JSON object, such as {"num_classes": 10}'
        )
    return arguments


def parse_input(text: str) -> InputSpec:
    """Parse a shape with an optional name, dtype and values. Raises SourceNameError.

    >>> parse_input("1x3x32x32").shape, parse_input("batch.ids=2x8:int64:0..99")
    ((1, 3, 32, 32), InputSpec(shape=(2, 8), dtype='int64', name='batch.ids', values='0..99'))
    """
    parts = _INPUT.fullmatch(text.strip())
    if not parts:
        raise SourceNameError(
            f"{text!r} does not describe an input; write sizes with the batch first: 1x3x32x32, 1x16:int64, "
            "NAME=1x16:int64:0..99, batch.ids=1x16:int64, state.0=1x1x8"
        )
    dtype = parts["dtype"] or ""
    if dtype and dtype not in DTYPES:
        raise SourceNameError(
            f"{text!r} has the dtype {dtype}; there are {', '.join(DTYPES)}"
        )
    sizes = (
        ()
        if parts["sizes"] == "scalar"
        else tuple(map(int, re.split("[x×]", parts["sizes"])))
    )
    if any(size >= 2**31 for size in sizes):
        raise SourceNameError(f"{text!r} has an invalid size")
    return InputSpec(sizes, dtype, parts["name"] or "", parts["values"] or "")


class ExampleSpec(Struct, frozen=True):
    """Inputs from a file: what its `function` returns, or the tensors that it contains if that is ""."""

    file: str
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.function}" if self.function else self.file


def parse_example(text: str) -> ExampleSpec:
    """Parse where inputs come from. Raises SourceNameError.

    >>> parse_example("nets/mine.py:example"), parse_example("batch.npz").function
    (ExampleSpec(file='nets/mine.py', function='example'), '')
    """
    file, colon, function = text.removesuffix("()").rpartition(":")
    if colon and file.endswith(".py") and _DOTTED.fullmatch(function):
        return ExampleSpec(file, function)
    if text.endswith(EXAMPLES):
        return ExampleSpec(text)
    raise SourceNameError(
        f"{text!r} does not name example inputs; write file.py:function, or a file that ends in {' or '.join(EXAMPLES)}"
    )


def adapters() -> dict[str, object]:
    """Return the entry points `tapedeck.sources` of installed packages, by name; none of them is imported."""
    from importlib.metadata import entry_points

    return {
        entry_point.name: entry_point
        for entry_point in entry_points(group="tapedeck.sources")
    }
