"""Load a model to import, and convert it to a project.

A user's own file runs only in a child process (`import_child`), with a time limit, and only with their consent.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

from app.builder.blocks import with_blocks
from app.builder.catalog.catalog import Catalog, catalog
from app.engine.requests.import_model import ImportFailed, ModelInput, ModelSource, names_in
from app.project.project import Project
from app.util import tensor_files
from app.util.formatting import shape_text

if TYPE_CHECKING:
    from torch import nn

    from app.builder.importer.lowering.opaque import OwnClasses

# What torchvision's pictures and clips are, where no weights say it.
_PICTURE, _CLIP, _SCENE = (3, 224, 224), (3, 16, 112, 112), (3, 320, 320)
_NO_STATISTICS = "Expected more than 1 value per channel when training"  # of one sample; of two there are
BACKBONE = "backbone"  # what computes with tensors in a model that detects


# --- Models


def make_torchvision(
    name: str, arguments: Mapping[str, Any], pretrained: bool = False, empty: bool = False
) -> nn.Module:
    """Construct one of torchvision's models, or a submodule of one, with random weights or those cached on disk. With
    `empty` random weights are zeros instead, which is much faster. Raises ImportFailed."""
    from app.util.torchvision_import import import_torchvision

    models = import_torchvision("models")
    name, _, part = name.partition(".")
    if name not in models.list_models():
        near = [known for known in models.list_models() if known.startswith(name[:4])]
        raise ImportFailed(f"torchvision has no model {name}" + (f"; there are {', '.join(near[:8])}" if near else ""))
    if name in models.list_models(module=models.detection) and not part:
        raise ImportFailed(
            f"{name} takes a list of pictures and gives a list of dicts (boxes, labels, scores), and losses in "
            f"training, which no drawing does. Import the net in it: torchvision:{name}.{BACKBONE}"
        )
    given = dict(arguments)
    try:
        if not pretrained:
            if "weights_backbone" in inspect.signature(models.get_model_builder(name)).parameters:
                given = {"weights_backbone": None, **given}
            with blank() if empty else contextlib.nullcontext():
                model = models.get_model(name, weights=None, **given)
        else:
            model = _with_known_weights(models, name, given)
    except ImportFailed:
        raise
    except Exception as error:  # whatever a constructor raises is about its arguments
        raise ImportFailed(f"{name} cannot be made: {type(error).__name__}: {error}") from error
    try:
        return model.get_submodule(part)
    except AttributeError as error:
        there = ", ".join(child for child, _ in model.named_children())
        raise ImportFailed(f"{name} has no part {part}; its own are {there}") from error


@contextlib.contextmanager
def blank() -> Iterator[None]:
    """Skip random initialisation in this thread: new tensors stay zero, without touching their pages."""
    import torch
    from torch.overrides import TorchFunctionMode

    init = torch.nn.init
    drawing = {torch.Tensor.uniform_, torch.Tensor.normal_, torch.Tensor.erfinv_, init.uniform_, init.normal_,
               init.kaiming_uniform_, init.kaiming_normal_}  # fmt: skip

    class Zeros(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func in drawing:
                return args[0] if args else (kwargs or {})["tensor"]
            made = torch.zeros if func is torch.empty and "memory_format" not in (kwargs or {}) else func
            return made(*args, **(kwargs or {}))

    with Zeros():
        yield


def _with_known_weights(models: Any, name: str, arguments: Mapping[str, Any]) -> nn.Module:
    import torch

    weights = models.get_model_weights(name).DEFAULT
    file = Path(torch.hub.get_dir()) / "checkpoints" / weights.url.rpartition("/")[2]
    if not file.is_file():
        size = weights.meta.get("_file_size")
        words = f" of {size:.0f} MB" if size else ""
        where = f"download {weights.url} to {file} first"
        raise ImportFailed(f"the weights of {name}{words} are not on the disk; {where}")
    model: nn.Module = models.get_model(name, weights=None, **arguments)
    try:
        model.load_state_dict(tensor_files.load(file))
    except tensor_files.UnreadableTensors as error:
        raise ImportFailed(f"the weights of {name} cannot be used: {error}") from error
    return model


def known_names(models: Any) -> list[str]:
    """Return the names of torchvision's models that can be imported: of detection models, the backbone."""
    detecting = models.list_models(module=models.detection)
    return [f"{name}.{BACKBONE}" if name in detecting else name for name in models.list_models()]


def usual_input(name: str) -> ModelInput:
    """Return the input that a torchvision model's weights are made for. For a submodule it is that of the whole model,
    which is right for its first part."""
    from app.util.torchvision_import import import_torchvision

    models = import_torchvision("models")
    name = name.partition(".")[0]
    sizes = _CLIP if name in models.list_models(module=models.video) else _PICTURE
    try:
        crop = models.get_model_weights(name).DEFAULT.transforms().crop_size
    except (ValueError, AttributeError):
        if name in models.list_models(module=models.detection):
            return ModelInput((2, *_SCENE))  # of a last map of one place, one sample has no statistics
        return ModelInput((1, *sizes))
    crop = tuple(crop) if isinstance(crop, list | tuple) else (crop,)
    crop = crop * 2 if len(crop) == 1 else crop
    return ModelInput((1, *sizes[:-2], *crop))


class _Loader(SourceFileLoader):
    """Executes the reviewed source itself: a cached .pyc may be of another text than the one trusted."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def make_from_file(source: ModelSource, arguments: Mapping[str, Any]) -> nn.Module:
    """Run a user's file and construct its model. Only a child process calls this. Raises ImportFailed."""
    from torch import nn

    path = Path(source.file).resolve()
    sys.path.insert(0, str(path.parent))
    from app.builder.importer.lowering.constructor_args import recording
    from app.util.torchvision_import import mend_torchvision

    mend_torchvision()
    spec = importlib.util.spec_from_file_location(path.stem, path, loader=_Loader(path.stem, str(path)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        with recording():
            spec.loader.exec_module(module)
        maker = getattr(module, source.name, None)
        if not callable(maker):
            there = ", ".join(names_in(path.read_text("utf-8"))) or "nothing that makes a model"
            what = "" if maker is None else ", neither a class nor a function"
            found = f"has {'no ' if maker is None else ''}{source.name}{what}"
            raise ImportFailed(f"{path.name} {found}; it has {there}")
        if isinstance(maker, nn.Module) and not source.call and not arguments:
            return maker
        fitting(maker, f"{path.name}: {source.name}", **arguments)
        model = maker(**arguments)
    except ImportFailed:
        raise
    except (Exception, SystemExit) as error:
        words = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise ImportFailed(f"{path.name}{line_in(error, path)}: {words}") from error
    if not isinstance(model, nn.Module):
        raise ImportFailed(f"{source} gives {type(model).__name__}, which is no nn.Module")
    return model


def fitting(called: Callable[..., Any], name: str, *args: Any, **named: Any) -> None:
    """Raise ImportFailed for arguments that do not match the signature, with the signature."""
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):
        return  # calling it raises
    try:
        signature.bind(*args, **named)
    except TypeError as error:
        wanted = ", ".join(str(one.replace(annotation=one.empty)) for one in signature.parameters.values())
        raise ImportFailed(f"{name}({wanted}): {error}") from error


def line_in(error: BaseException | None, path: Path) -> str:
    """`, line 12`, where an error or its cause arose in a file; nothing where it did elsewhere."""
    found = ""
    while error is not None:
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename == str(path):
                found = f", line {frame.lineno}"
        error = error.__cause__ or error.__context__
    return found


def complete(model: nn.Module, inputs: tuple[ModelInput, ...]) -> None:
    """Let layers that learn their sizes from what arrives see it once. Raises ImportFailed."""
    import torch
    from torch.nn.parameter import is_lazy

    if not any(map(is_lazy, (*model.parameters(), *model.buffers()))):
        return
    try:
        with torch.no_grad():
            model(*(torch.zeros(one.shape, dtype=getattr(torch, one.dtype)) for one in inputs))
    except Exception as error:  # the model's own words
        words = f"{type(error).__name__}: {error}"
        raise ImportFailed(f"{type(model).__name__} does not take what arrives: {words}") from error


# --- Projects


def project_of(
    model: nn.Module, inputs: tuple[ModelInput, ...], name: str, cancelled: Callable[[], bool] = lambda: False,
    own: OwnClasses | None = None, apart: Mapping[str, str] | None = None,
) -> Project:  # fmt: skip
    """Convert a live model to a project. `own` are the classes of its file, and allow the batch at any dimension; each
    submodule in `apart` becomes one node. Raises ImportFailed.

    The first line of the notes gives the origin, each further one describes a part that was not traced call by call.
    """
    import torch

    from app.builder.importer.building import import_module
    from app.builder.importer.lowering.ir import DraftError
    from app.builder.importer.tracing.frames import TraceError

    fitting(model.forward, f"{type(model).__name__}.forward", *inputs)
    complete(model, inputs)
    examples = tuple(torch.zeros(one.shape, dtype=getattr(torch, one.dtype), device="meta") for one in inputs)
    try:
        drawn = import_module(model, examples, catalog(), cancelled=cancelled, own=own, apart=apart)
    except (TraceError, DraftError) as error:
        if _NO_STATISTICS in str(error) and all(one.shape[:1] == (1,) for one in inputs):
            two = tuple(replace(one, shape=(2, *one.shape[1:])) for one in inputs)
            return project_of(model, two, name, cancelled, own, apart)
        where = line_in(error, own.file.path) if own is not None else ""
        raise ImportFailed(f"{error} ({own.file.path.name}{where})" if own and where else str(error)) from error
    shapes = ", ".join(shape_text(one.shape) for one in inputs)
    notes = "\n".join((f"Imported from {name} with an input of {shapes}.", *map(str, drawn.fallbacks), *drawn.remarks))
    graphs = (drawn.graph, *(block.graph for block in drawn.blocks.values()))
    files = own.files_of({node.op for graph in graphs for node in graph.nodes.values()}) if own is not None else ()
    project = Project(name=name, graph=drawn.graph, positions=drawn.positions, comments=drawn.comments,
                      blocks=drawn.blocks, layer_files=files, notes=notes)  # fmt: skip
    return project if own is None else with_batch(project, inputs, own.with_these(catalog()))


def with_batch(project: Project, inputs: tuple[ModelInput, ...], ops: Catalog) -> Project:
    """Return the project with the batch dimension of its inputs where the shapes fit: first, second, or none.

    Unchanged if nothing fits, or if it has no problem.
    """
    from app.builder.analysis import analyse

    ops = with_blocks(ops, project.blocks)
    if not analyse(project.graph, ops).errors:
        return project
    nodes = [node for node in project.graph.nodes.values() if node.op == "input"]
    for place in (1, None):
        changed = project.graph.nodes
        for node, one in zip(nodes, inputs, strict=True):
            sizes = one.shape if place is None else (one.shape[:place] + one.shape[place + 1 :])
            changed = changed.set(node.id, replace(node, params=node.params.update({"shape": sizes, "batch": place})))
        where = "There is no batch: sizes are those" if place is None else f"The batch is dimension {place}"
        notes = f"{project.notes}\n{where} of what arrives."
        other = replace(project, graph=replace(project.graph, nodes=changed), notes=notes)
        found = analyse(other.graph, ops)
        if not found.errors and (place is None or "N" in str(found.output_type())):  # a batch comes out again
            return other
    return project
