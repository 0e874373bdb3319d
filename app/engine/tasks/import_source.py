"""Make the model of a source that is neither a file of layers nor torchvision's, for an import."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from app.engine.requests.import_model import ImportModel, ModelImportError, ModelInput
from app.sources.finding import file_of
from app.sources.spec import InputSpec, SourceError, SourceSpec

if TYPE_CHECKING:
    from torch import nn

    from app.builder.importer.lowering.opaque import OwnClasses


def made(request: ImportModel, folder: Path) -> tuple[nn.Module, tuple[ModelInput, ...], OwnClasses]:
    """Return the model with positional inputs, and the classes that may be nodes. Raises ModelImportError."""
    from app.builder.importer.lowering.constructor_args import recording
    from app.sources.loading import load
    from app.sources.positional import positional

    spec = request.source.spec
    assert spec is not None
    if request.source.folder:
        os.chdir(request.source.folder)
    inputs = tuple(InputSpec(one.shape, one.dtype, one.name) for one in request.inputs)
    try:
        with recording():
            loaded = load(spec.as_run, request.arguments, inputs, False, request.source.folder)
        model, given = positional(loaded)
    except SourceError as error:
        raise ModelImportError(str(error), "constructor" if "cannot be made" in str(error) else "failed") from error
    shapes = tuple(ModelInput(tuple(one.shape), str(one.dtype).removeprefix("torch.")) for one in given)
    return model, shapes, _classes(spec, request.source.folder, folder)


def _classes(spec: SourceSpec, where: str, folder: Path) -> OwnClasses:
    """Return those of the module's file, or, of a collection, those of installed packages alone."""
    from app.builder.catalog.custom import read_file
    from app.builder.importer.lowering.opaque import OwnClasses

    file = file_of(spec, where)
    if file is not None:
        installed = "site-packages" in file.parts
        return OwnClasses(read_file(file), vars(sys.modules[spec.where]), folder if installed else None)
    empty = folder / "source" / "source.py"
    empty.parent.mkdir(exist_ok=True)
    empty.write_text('"""Stands for a collection of models, of which no class is in a file of its own."""\n', "utf-8")
    return OwnClasses(read_file(empty), {}, folder)
