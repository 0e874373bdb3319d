"""The model that a command names: how it is made and called, whether its code may run, and where it runs."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from msgspec.structs import replace

from app.cli import arguments, console, settings
from app.data.loaders import load
from app.engine import observe_process
from app.engine.requests import observe
from app.project import custom_layers
from app.project.project import Project
from app.source import layer_files, own_files
from app.source.trust import TrustStore, default_file
from app.sources import finding
from app.sources.finding import package_of
from app.sources.spec import (
    BATCH,
    FILES,
    AskedModel,
    InputSpec,
    SourceNameError,
    parse_example,
    parse_source,
)
from app.training.config import TARGET
from app.util.leftovers import TemporaryFolder

if TYPE_CHECKING:
    from torch import Tensor

    from app.engine.requests.observe import Observe
    from app.source.own_files import OwnFiles
    from app.sources.spec import SourceSpec

A = TypeVar("A")
ON = "on"  # --example on
_folders: list[TemporaryFolder] = []  # of batches, removed when this process ends


def asked_model(
    options: argparse.Namespace, source: str, constructor: str | None = None
) -> AskedModel:
    """Return a model as the options of a command describe it; `constructor` replaces --args."""
    made_with = (
        arguments.value_of(options, "--args") if constructor is None else constructor
    )
    inputs = tuple(arguments.value_of(options, "--input"))
    meta, trust = getattr(options, "meta", False), options.trust
    train, example = arguments.value_of(options, "--train"), _example_of(options)
    return AskedModel(source, made_with, inputs, train, meta, trust, example=example)


def request_of(
    options: argparse.Namespace,
    source: str,
    constructor: str | None = None,
    viewed: bool = False,
) -> Observe:
    """Return the request for a model whose code may run, as `asked_model`. If it can be `viewed`, a file that describes
    its own graph is not run without trust.

    Raises SourceError, and CommandError for code that is not trusted.
    """
    request = observe.request_of(asked_model(options, source, constructor))
    request = request if viewed else replace(request, source=request.source.as_run)
    admit(request.source, request.folder, options.trust)
    admit_example(request.example, options.trust)
    return request


def admit(source: SourceSpec, folder: str, trust: bool) -> str:
    """Let the code of a model run in this process and its engines from now on, if it is trusted or if `trust` says that
    it was reviewed, which is remembered. Return the version of its files, "" without any. Raises CommandError."""
    if not source.own_code:
        return ""
    return admit_files(
        finding.files_of(source, folder), source.where or str(source), trust
    )


def admit_example(example: str, trust: bool) -> None:
    """Let the function run that returns the inputs of a model, as `admit` does."""
    spec = parse_example(example) if example else None
    if spec is not None and spec.function and Path(spec.file).is_file():
        path = Path(spec.file).resolve()
        admit_files(own_files.read(path, package_of(path)[1]), spec.file, trust)


def admit_files(files: OwnFiles | None, name: str, trust: bool) -> str:
    """Let files run as `admit` does. None are those of a source that has no file to review: it is asked each time."""
    TrustStore(default_file()).admit()
    if files is not None and layer_files.allowed(files.key):
        return files.digest
    if not trust:
        others = (
            f", with what it imports: {files.others}"
            if files is not None and files.others
            else ""
        )
        raise console.CommandError(
            f"{name} was not run; review it, then pass --trust{others}", 1
        )
    custom_layers.trust_file(files)
    return files.digest if files is not None else ""


def answer(request: Any, model: Observe, seconds: float, task: Callable[[Any], A]) -> A:
    """Answer a request about a model: code of the user's own in a process that ends after `seconds`, else here, by
    `task`. Raises what the handler raises."""
    if not model.runs_own_code:
        return task(request)
    answered: A = observe_process.answer(request, model, seconds)
    return answered


def is_model(options: argparse.Namespace) -> bool:
    """Return whether SOURCE names a model, and neither a project, nor a snippet, nor a function of a file.

    A function of a file is a model where it is called, `FILE.py:make()`, or constructor arguments are given.
    """
    source = _named(str(options.project))
    if source is None:
        return False
    is_called = source.call or arguments.value_of(options, "--args") != "{}"
    return (
        source.kind != "file" or is_called or _is_class(Path(source.where), source.name)
    )


def _named(text: str) -> SourceSpec | None:
    path = Path(text)
    if path.exists() and path.suffix.removeprefix(".") not in FILES:
        return None
    try:
        return parse_source(text)
    except SourceNameError:
        return None


def _is_class(file: Path, name: str) -> bool:
    """Return whether a file defines a class of this name; it is not run."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False
    return any(
        isinstance(node, ast.ClassDef) and node.name == name.partition(".")[0]
        for node in tree.body
    )


# --- The first batch of data as its inputs


def _example_of(options: argparse.Namespace) -> str:
    """Return the example inputs that a command names; of --on DATA a file of their first batch, which is announced.

    Raises CommandError for data that cannot be read.
    """

    example, data = (
        arguments.value_of(options, "--example") or "",
        arguments.value_of(options, "--on"),
    )
    if example == ON and data is None:
        raise console.CommandError("--example on: name the data with --on DATA")
    fits = getattr(options, "first_batch", False) and data is not None
    if example == ON or (
        fits and not example and not arguments.value_of(options, "--input")
    ):
        options.example = _written(options)
    return arguments.value_of(options, "--example") or ""


def _written(options: argparse.Namespace) -> str:
    """Write the first batch of the data to a file, print a line about it, and return its path."""
    project = settings.with_settings(Project(), options)
    custom_layers.admit(project, options.trust)
    root = arguments.value_of(options, "--data")
    data = load(project.data, root)
    inputs, targets = data.batch(project.training.batch_size)
    batch = {"inputs": _fields(inputs, ""), "targets": _fields(targets, TARGET)}
    _folders.append(TemporaryFolder())
    path = Path(_folders[-1].name, f"first{BATCH}")
    torch.save(batch, path)
    console.warn(
        f"inputs: the first batch of {options.on}, {_described(batch['inputs'])}"
    )
    return str(path)


def _fields(values: Any, name: str) -> dict[str, Tensor]:
    """Return the tensors of a batch by name; that of an only one is `name`."""
    return dict(getattr(values, "parts", {name: values}))


def _described(fields: Mapping[str, Tensor]) -> str:
    """Describe tensors in the form of --input."""
    return ", ".join(
        str(
            InputSpec(
                tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), name
            )
        )
        for name, tensor in fields.items()
    )
