"""Custom layers: the user's Python files whose classes are ops of the catalog, `custom.my_layers:Swish`.

A file is parsed but not run until its text is trusted (`layer_files.allow`). Until then its classes have ports and
parameters, but the kind "unknown", so their shapes are not inferred. `target` contains the hash of the text, so that
cached results become invalid when the file is edited.
"""

from __future__ import annotations

import io
import re
import stat
import sys
import tokenize
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from app.builder.catalog.catalog import Catalog, OpSpec, catalog
from app.builder.catalog.custom_classes import LayerClass, LayerTextError, read_classes
from app.builder.graph import Graph
from app.builder.names import identifier
from app.source import layer_files
from app.source.layer_files import LayerFile, LayerFileError

PREFIX = "custom."
TARGET = "custom:"
LARGEST_FILE = 1 << 20
_NOT_NOW = "waiting:"
# Module names of an exported net.
_TAKEN = frozenset({"model", "train", "app"}) | sys.stdlib_module_names
_PACKAGES = frozenset(
    {"torch", "torchvision", "numpy", "sklearn", "safetensors", "scipy"}
)
_KEPT = 8


class CustomFile(Struct, frozen=True, dict=True):
    """One layer file in its current state. `problem` tells why it cannot be used, "" if it can.

    `path` is its location; `file` its text, None if it cannot be read.
    """

    path: Path
    module: str
    file: LayerFile | None = None
    classes: tuple[LayerClass, ...] = ()
    problem: str = ""
    trusted: bool = False

    @property
    def name(self) -> str:
        return self.path.name

    @cached_property
    def specs(self) -> tuple[OpSpec, ...]:
        """An op for every class. Those that cannot be used now have the kind "unknown"."""
        return tuple(_spec(self, layer_class) for layer_class in self.classes)

    def key(self, layer_class: LayerClass) -> str:
        return f"{PREFIX}{self.module}:{layer_class.name}"

    def spec_of(self, layer_class: LayerClass) -> OpSpec:
        """Return the op of a class of this file."""
        return next(spec for spec in self.specs if spec.key == self.key(layer_class))


def is_custom(op: str) -> bool:
    """Return whether an op is a class of a layer file."""
    return op.startswith(PREFIX)


def module_of(op: str) -> str:
    """Return the module of a custom op's class.

    >>> module_of("custom.my_layers:Swish")
    'my_layers'
    """
    return op.removeprefix(PREFIX).partition(":")[0]


def module_name(path: Path) -> str:
    """Return the module name of a file: its stem, changed if it would shadow another module.

    >>> module_name(Path("my layers.py")), module_name(Path("math.py"))
    ('my_layers', 'math_layers')
    """
    word = (
        identifier(path.stem, "layers").encode("ascii", "ignore").decode() or "layers"
    )
    word = word if word.isidentifier() else "layers"
    return f"{word}_layers" if word in _TAKEN | _PACKAGES else word


def read_text(path: Path) -> str:
    """Read the text of a layer file. Raises LayerFileError with the reason."""
    if path.suffix != ".py":
        raise LayerFileError(
            f"{path.name} is not a Python file; its name must end in .py"
        )
    if str(path).startswith(("\\\\", "//")):
        raise LayerFileError(f"{path} is on another machine; copy it to this one first")
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise LayerFileError(f"{path.name} is not a regular file")
        with path.open("rb") as opened:
            data = opened.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise LayerFileError(f"{path.name} was not found in {path.parent}") from None
    except (OSError, ValueError) as error:
        raise LayerFileError(
            f"{path.name} cannot be read: {getattr(error, 'strerror', '') or error}"
        ) from error
    if len(data) > LARGEST_FILE:
        raise LayerFileError(
            f"{path.name} is larger than {LARGEST_FILE >> 20} MiB, the limit for a custom layer file"
        )
    return _decoded(data, path.name)


def _decoded(data: bytes, name: str) -> str:
    """Decode the text as it will run and be exported: UTF-8, whatever its encoding declaration."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode("utf-8-sig")
    except (SyntaxError, UnicodeDecodeError) as error:
        raise LayerFileError(
            f"{name} is not in UTF-8; save it in that encoding"
        ) from error
    if not encoding.startswith("utf-8") and not text.isascii():
        raise LayerFileError(
            f"{name} declares the encoding {encoding}; save it as UTF-8 and remove that line"
        )
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_file(path: Path, ops: Mapping[str, OpSpec] | None = None) -> CustomFile:
    """Read a layer file. Never raises: an error is its `problem`."""
    module = module_name(path)
    try:
        text = read_text(path)
    except LayerFileError as error:
        return CustomFile(path, module, problem=str(error))
    file = LayerFile.from_text(module, text, str(path))
    try:
        classes = _classes(text) if ops is None else read_classes(text, ops)
    except LayerTextError as error:
        return CustomFile(path, module, file, problem=f"{path.name}: {error}")
    message = (
        ""
        if classes
        else f"{path.name} defines no subclass of nn.Module or autograd.Function"
    )
    return CustomFile(
        path, module, file, classes, message, layer_files.allowed(file.sha256)
    )


@lru_cache(maxsize=64)
def _classes(text: str) -> tuple[LayerClass, ...]:
    """Parse the classes; cached, since a watched folder may report changes of other files. Raises LayerTextError."""
    return read_classes(text, catalog())


def read_files(
    paths: Iterable[Path | str], ops: Mapping[str, OpSpec] | None = None
) -> tuple[CustomFile, ...]:
    """Read all layer files of a project. Of two with the same module name the second is unusable."""
    files: list[CustomFile] = []
    _reasons.clear()
    for path in map(Path, paths):
        file = read_file(path, ops)
        other = next(
            (
                earlier
                for earlier in files
                if earlier.module.casefold() == file.module.casefold()
            ),
            None,
        )
        if other is not None:
            problem = f"{file.path} would be imported as {file.module}, and so would {other.path}; rename one"
            file = CustomFile(path, file.module, file.file, problem=problem)
        else:
            _reasons[file.module] = (
                file.problem or f"{file.name} no longer has this class"
            )
        files.append(file)
    return tuple(files)


# --- Specs ------------------------------------------------------------------------------------------------------

_known: dict[str, tuple[LayerFile, LayerClass]] = {}  # by target
_reasons: dict[str, str] = {}  # by module: why a class is not there
_made: list[tuple[Catalog, tuple[CustomFile, ...], Catalog]] = []


def with_custom(base: Catalog, files: tuple[CustomFile, ...]) -> Catalog:
    """Extend the catalog by an op for every class; cached for recent arguments."""
    specs = [spec for file in files for spec in file.specs]
    if not specs:
        return base
    for cached_base, cached_files, extended in _made:
        if cached_base is base and cached_files == files:
            return extended
    extended = base.plus(specs)
    _made[:] = [(base, files, extended), *_made[: _KEPT - 1]]
    return extended


def _spec(file: CustomFile, layer: LayerClass) -> OpSpec:
    assert file.file is not None
    usable = file.trusted and not layer.reason
    target = f"{TARGET if usable else TARGET + _NOT_NOW}{file.file.sha256}:{file.module}:{layer.name}"
    _known[target] = (file.file, layer)
    return OpSpec(
        key=file.key(layer),
        kind=("module" if layer.kind == "module" else "function")
        if usable
        else "unknown",
        target=target,
        label=layer.name,
        category="block",
        stem=re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", layer.name).lower(),
        inputs=layer.inputs,
        outputs=layer.outputs,
        params=layer.params,
    )


def registered(spec: OpSpec) -> tuple[LayerFile, LayerClass] | None:
    """Return the file and class of an op, None for ops of torch."""
    return _known.get(spec.target)


def usable(target: str) -> tuple[LayerFile, LayerClass]:
    """Return the file and class of a custom op's target. Raises layer_files.UntrustedError if it may not run."""
    if target not in _known or target.startswith(TARGET + _NOT_NOW):
        raise layer_files.UntrustedError(
            f"{target.rpartition(':')[2]} is defined in a file that is not trusted yet"
        )
    return _known[target]


def register(spec: OpSpec, file: LayerFile, layer: LayerClass) -> None:
    """Register the class of a file that an op stands for, as in the process that sent it."""
    _known[spec.target] = (file, layer)


def reasons() -> dict[str, str]:
    """Return why modules that a drawing refers to are missing, by module."""
    return dict(_reasons)


def set_reasons(reasons_by_module: Mapping[str, str]) -> None:
    """Take over why modules are not there, as another process found it."""
    _reasons.clear()
    _reasons.update(reasons_by_module)


def file_of(spec: OpSpec) -> LayerFile | None:
    """Return the file of an op's class; None for other ops."""
    registration = _known.get(spec.target)
    return registration[0] if registration else None


def class_of(spec: OpSpec) -> LayerClass | None:
    """Return the parsed class of an op; None for other ops."""
    registration = _known.get(spec.target)
    return registration[1] if registration else None


def is_function(spec: OpSpec) -> bool:
    """Return whether an op is a user's `autograd.Function`, called by `apply`."""
    layer_class = class_of(spec)
    return layer_class is not None and layer_class.kind == "function"


def why_not(spec: OpSpec) -> tuple[str, str] | None:
    """Return why a custom op cannot be used, and what to do; None if it can.

    Covers placeholders of a missing file or class, too.
    """
    if not is_custom(spec.key) or spec.kind != "unknown":
        return None
    registration, name = _known.get(spec.target), spec.key.partition(":")[2]
    if registration is None:
        reason = _reasons.get(module_of(spec.key))
        if reason is None:
            return (
                f"{module_of(spec.key)}.py is not in this project",
                f"Add the file that defines {name} to My layers.",
            )
        return (
            f"{name} cannot be used: {reason}",
            "Its settings are kept. Restore the file, or add it again.",
        )
    file, layer = registration
    called = Path(file.path).name or file.name
    if layer.reason:
        return (
            f"{layer.name} of {called} cannot be used: {layer.reason}",
            "Edit the class; the file is reloaded.",
        )
    return (
        f"{called} is not trusted yet",
        f"None of its code has been run. View and trust it to use {layer.name}.",
    )


def documentation(key: str) -> tuple[str, str]:
    """Return the first line of a class's docstring, and facts about the class."""
    matches = [
        (file, layer)
        for target, (file, layer) in _known.items()
        if _key(file, layer) == key
    ]
    if not matches:
        raise KeyError(key)
    file, layer = matches[-1]
    text = f"A class of {file.path or file.name}, line {layer.line}."
    if layer.kept:
        text += f" {', '.join(layer.kept)} keep the default of the class."
    return layer.summary or f"{layer.name} of {file.name}.", text


def _key(file: LayerFile, layer: LayerClass) -> str:
    return f"{PREFIX}{file.module}:{layer.name}"


def row(
    layer: LayerClass,
    arguments: Mapping[str, Any],
    default: Callable[[Any], Any],
    nothing: Any = None,
) -> list[Any]:
    """List the arguments of `apply` in order, up to the last one given; `default` fills the gaps.

    `nothing` is the value of an unconnected input in between.
    """
    params = {param.name: param for param in layer.params}
    last = max(
        (n for n, name in enumerate(layer.order) if name in arguments), default=-1
    )
    return [
        arguments[name]
        if name in arguments
        else default(params[name])
        if name in params
        else nothing
        for name in layer.order[: last + 1]
    ]


# --- Source -----------------------------------------------------------------------------------------------------


def local_names(specs: Iterable[OpSpec], reserved: Iterable[str]) -> dict[str, str]:
    """Choose the local name of each class in the source, by op: its own, or a numbered one if that is taken."""
    used, names = set(reserved), dict[str, str]()
    for spec in specs:
        if spec.key in names or spec.kind == "unknown" or file_of(spec) is None:
            continue
        name, number = spec.label, 2
        while name in used:
            name, number = f"{spec.label}{number}", number + 1
        used.add(name)
        names[spec.key] = name
    return names


def import_lines(names: Mapping[str, str]) -> list[str]:
    """Return import statements such as `from my_layers import Swish`, one per file."""
    imports_by_module: dict[str, list[str]] = {}
    for key, local in names.items():
        class_name = key.partition(":")[2]
        imports_by_module.setdefault(module_of(key), []).append(
            class_name if class_name == local else f"{class_name} as {local}"
        )
    return [
        f"from {module} import {', '.join(sorted(imports))}"
        for module, imports in sorted(imports_by_module.items())
    ]


def files_of(specs: Iterable[OpSpec]) -> tuple[LayerFile, ...]:
    """List the files that ops need, each once, sorted by name."""
    files_by_module = {
        file.module: file
        for spec in specs
        if (file := file_of(spec)) is not None and spec.kind != "unknown"
    }
    return tuple(files_by_module[module] for module in sorted(files_by_module))


def used_in(graph: Graph, file: CustomFile) -> tuple[str, ...]:
    """List the nodes of a graph whose class is in a file."""
    return tuple(
        node.id
        for node in graph.nodes.values()
        if is_custom(node.op) and module_of(node.op) == file.module
    )
