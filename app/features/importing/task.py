"""Load a model to import, and convert it to a project.

A user's own file runs only in a separate engine (`process`), with a time limit and their consent.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from app.builder.catalog.custom import read_file
from app.engine.server import Context, handles
from app.export.errors import WeightsError
from app.features.importing.compute.errors import code_of, fitting, line_in
from app.features.importing.compute.lowering.constructor_args import recording
from app.features.importing.compute.lowering.opaque import OwnClasses
from app.features.importing.compute.parity.initial import blank, recording_inits
from app.features.importing.compute.pipeline import (
    Wish,
    complete,
    imported,
    with_dtypes,
)
from app.features.importing.values import (
    CHECKING,
    EarlyDrawing,
    ImportModel,
    ImportRequestError,
    ImportStep,
    KnownModel,
    ListModels,
    ModelImportError,
)
from app.project.project import Project
from app.source import layer_files, own_imports
from app.source.layer_files import names_in
from app.sources.finding import file_of, files_of, package_of, relative_level
from app.sources.loading import Loaded, load
from app.sources.spec import InputSpec, ModelRaisedError, SourceError
from app.util import module_tree, tensor_files
from app.util.torchvision_import import import_torchvision, mend_torchvision

if TYPE_CHECKING:
    from app.sources.spec import SourceSpec

# Sizes of torchvision's images and clips, for models without weights that state them.
_PICTURE, _CLIP, _SCENE = (3, 224, 224), (3, 16, 112, 112), (3, 320, 320)
BACKBONE = "backbone"  # what computes with tensors in a model that detects
BESIDE = 5  # niceness of a comparison that runs while the window shows its drawing


# --- Questions


@handles(ListModels)
def list_models(_request: ListModels, _context: Context) -> tuple[KnownModel, ...]:
    try:
        return known_models()
    except (
        Exception
    ) as error:  # a torchvision incompatible with this torch may raise anything
        raise ModelImportError(f"{error}", "no_torchvision") from error


@handles(ImportModel)
def import_model(request: ImportModel, context: Context) -> Project:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # discard what the model prints
    gc.freeze()  # and keep loaded modules out of garbage collections during the import
    try:
        return answer(
            request,
            Path(request.folder),
            lambda progress_text: context.progress(
                ImportStep(progress_text, progress_text.startswith(CHECKING))
            ),
            partial(_hand_over, context) if request.early else None,
        )
    except ModelImportError as error:
        error.args = (str(error).replace("\n", " "),)
        raise
    except Exception as error:  # reported by the client, with the traceback
        message = f"it cannot be imported: {type(error).__name__}: {error}".replace(
            "\n", " "
        )
        code = "not_written" if isinstance(error, OSError | WeightsError) else "failed"
        raise ModelImportError(message, code) from error


def _hand_over(context: Context, project: Project) -> None:
    """Report the drawing before it is compared with its model, and lower the priority of the comparison."""
    context.progress(EarlyDrawing(project))
    if sys.platform != "win32":
        os.nice(BESIDE)


def answer(
    request: ImportModel,
    folder: Path,
    tell: Callable[[str], None] = lambda _words: None,
    drawn: Callable[[Project], None] | None = None,
) -> Project:
    """Import the requested model as a project, files in `folder`; a user's own file runs here. `drawn` receives
    the early project of a large model. Raises ModelImportError, OSError, WeightsError."""
    source, inputs, classes = request.source, request.inputs, None
    tell(f"Making {request.name}")
    with recording_inits() as notes:
        label = request.model
        if request.runs_file:
            model = make_from_file(source, request.arguments, request.where)
            classes = _own_classes(Path(source.where), folder)
            label = str(replace(source, where=Path(source.where).name))
        elif source.kind == "torchvision" and not request.opened:
            model = make_torchvision(source.name, request.arguments, request.pretrained)
            inputs = inputs or (usual_input(source.name),)
        else:
            model, inputs, classes = make_from_source(request, folder)
        inputs = with_dtypes(model, inputs)
        if path := module_tree.cycle(model):
            raise ModelImportError(
                f"{path} is a module that holds it: torch cannot store such a model, as its state_dict() does not end. "
                "Keep the reference outside the modules, as in self.parent = [parent]",
                "cycle",
            )
        _refuse_quantised(model)
        complete(model, inputs)
    wish = Wish(request.name, label, inputs, request.keep_weights, request.take_inits)
    inits = dict if request.pretrained else partial(notes.inits_of, model)
    try:
        with _compiled_parts_eager(model):
            return imported(model, wish, folder, inits, classes, tell, drawn)
    except ModelImportError as error:
        error.args = (
            " ".join(
                filter(None, (module_tree.unregistered_sentence(model), str(error)))
            ),
        )
        raise


def _compiled_parts_eager(model: nn.Module) -> contextlib.AbstractContextManager[None]:
    """Run what torch.compile has wrapped as its own Python code, which can be followed."""
    if not any(hasattr(module, "_orig_mod") for module in module_tree.modules(model)):
        return contextlib.nullcontext()
    eager: contextlib.AbstractContextManager[None] = torch.compiler.set_stance(
        "force_eager"
    )
    return eager


def _refuse_quantised(model: nn.Module) -> None:
    """Raise ModelImportError for packed weights, which are no tensors."""
    if path := module_tree.quantised(model):
        raise ModelImportError(
            f"{path} is quantised: its packed int8 weights have no gradient, and no project holds them. Import the "
            "model before it is quantised; tapedeck draw shows this one",
            "compiled",
        )


def _own_classes(path: Path, folder: Path | None = None) -> OwnClasses:
    """Return the classes of a file that has run in this process, which may be nodes of the drawing; with a `folder` for
    their files also those of installed packages."""
    read = read_file(path)
    if read.file is not None:
        layer_files.allow(read.file.sha256, tried=True)
    name = _module_of(path)[1]
    return OwnClasses(
        read_file(path),
        vars(sys.modules[name]),
        folder,
        name.partition(".")[0] if "." in name else "",
    )


def _module_of(path: Path) -> tuple[Path, str]:
    """Return the folder and the name by which a file is imported: a file with relative imports is of a package."""
    return package_of(path) if relative_level(path) else (path.parent, path.stem)


def make_from_source(
    request: ImportModel, folder: Path
) -> tuple[nn.Module, tuple[InputSpec, ...], OwnClasses]:
    """Return the model with positional inputs, and the classes that may be nodes. Raises ModelImportError."""
    spec = request.source
    if request.where:
        os.chdir(request.where)
    try:
        with recording():
            loaded = load(
                spec.as_run,
                request.arguments,
                request.inputs,
                False,
                request.where,
                request.example,
            )
        if loaded.refusal:
            raise ModelRaisedError(f"{spec}: {loaded.refusal}. {loaded.remark}")
        if request.part:
            loaded = _part_of(loaded, request.part)
        model, examples = positional(loaded)
    except ModelRaisedError as error:
        raise ModelImportError(str(error), "constructor") from error
    except SourceError as error:
        raise ImportRequestError(str(error)) from error
    shapes = tuple(
        InputSpec(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        for tensor in examples
    )
    return model, shapes, _classes_of(spec, request.where, folder)


def _part_of(loaded: Loaded, path: str) -> Loaded:
    """Return a module of a model with the tensors that its first call takes. Raises ModelImportError."""
    module, calls = loaded.model.get_submodule(path), list[tuple[Any, dict[str, Any]]]()
    hook = module_tree.before_call(
        module, lambda _, args, named: calls.append((args, named)), with_kwargs=True
    )
    module_tree.set_mode(loaded.model, False)
    try:
        with torch.no_grad():
            loaded.model(*loaded.args, **loaded.kwargs)
    except Exception as error:  # the part may have run before
        if not calls:
            raise ModelImportError(
                f"the model raises before {path} is called: {error}"
            ) from error
    finally:
        hook.remove()
    if not calls:
        raise ModelImportError(f"{path} was not called with these inputs")
    args, named = calls[0]
    defaults = {
        parameter.name: parameter.default
        for parameter in inspect.signature(module.forward).parameters.values()
    }
    keyword_arguments = {
        name: argument
        for name, argument in named.items()
        if isinstance(argument, torch.Tensor) or argument is not defaults.get(name)
    }
    return Loaded(
        module,
        args,
        {
            name: passed_argument
            for name, passed_argument in keyword_arguments.items()
            if passed_argument is not None
        },
    )


def _classes_of(spec: SourceSpec, where: str, folder: Path) -> OwnClasses:
    """Return those of the module's file, or, of a collection, those of installed packages alone."""
    file = file_of(spec, where)
    if file is not None:
        installed = "site-packages" in file.parts
        name = package_of(file)[1] if spec.kind == "file" else spec.where
        return OwnClasses(
            read_file(file), vars(sys.modules[name]), folder if installed else None
        )
    empty = folder / "source" / "source.py"
    empty.parent.mkdir(exist_ok=True)
    empty.write_text(
        '"""Placeholder for a model from a collection: its class has no file that could be imported."""\n',
        "utf-8",
    )
    return OwnClasses(read_file(empty), {}, folder)


# --- Models


def make_torchvision(
    name: str,
    arguments: Mapping[str, Any],
    pretrained: bool = False,
    empty: bool = False,
) -> nn.Module:
    """Construct one of torchvision's models, or a submodule of one, with random weights or those cached on disk. With
    `empty` random weights are zeros instead, which is much faster. Raises ModelImportError."""
    models = import_torchvision("models")
    name, _, submodule_path = name.partition(".")
    if name not in models.list_models():
        near = [
            model_name
            for model_name in models.list_models()
            if model_name.startswith(name[:4])
        ]
        there = f"; there are {', '.join(near[:8])}" if near else ""
        raise ModelImportError(
            f"torchvision has no model {name}{there}", "unknown_model"
        )
    if name in models.list_models(module=models.detection) and not submodule_path:
        raise ModelImportError(
            f"{name} takes a list of pictures and gives a list of dicts (boxes, labels, scores), and losses in "
            f"training, which no drawing does. Import the net in it, torchvision:{name}.{BACKBONE}, or keep its own "
            "code: Open a model, or --observe",
            "detection_model",
        )
    constructor_arguments = {
        name: value
        for name, value in arguments.items()
        if name != "weights" or value is not None
    }
    try:
        if not pretrained:
            if (
                "weights_backbone"
                in inspect.signature(models.get_model_builder(name)).parameters
            ):
                constructor_arguments = {
                    "weights_backbone": None,
                    **constructor_arguments,
                }
            with blank() if empty else contextlib.nullcontext():
                model = models.get_model(name, weights=None, **constructor_arguments)
        else:
            model = _with_known_weights(models, name, constructor_arguments)
    except ModelImportError:
        raise
    except Exception as error:  # whatever a constructor raises is about its arguments
        raise ModelImportError(
            f"{name} cannot be made: {type(error).__name__}: {error}", "constructor"
        ) from error
    try:
        return model.get_submodule(submodule_path)
    except AttributeError as error:
        there = ", ".join(child for child, _ in module_tree.named_children(model))
        raise ModelImportError(
            f"{name} has no part {submodule_path}; its own are {there}", "unknown_part"
        ) from error


def _with_known_weights(
    models: Any, name: str, arguments: Mapping[str, Any]
) -> nn.Module:
    weights = models.get_model_weights(name).DEFAULT
    file = Path(torch.hub.get_dir()) / "checkpoints" / weights.url.rpartition("/")[2]
    if not file.is_file():
        size = weights.meta.get("_file_size")
        size_text = f" of {size:.0f} MB" if size else ""
        where = f"download {weights.url} to {file} first"
        raise ModelImportError(
            f"the weights of {name}{size_text} are not on the disk; {where}",
            "not_downloaded",
        )
    model: nn.Module = models.get_model(name, weights=None, **arguments)
    try:
        model.load_state_dict(tensor_files.load(file))
    except tensor_files.UnreadableTensorsError as error:
        raise ModelImportError(
            f"the weights of {name} cannot be used: {error}", "unreadable_weights"
        ) from error
    return model


def known_models() -> tuple[KnownModel, ...]:
    """Return torchvision's models. Raises ImportError if it is not installed."""
    models = import_torchvision("models")
    listed_models = []
    for name in known_names(models):
        rooms = models.get_model_builder(name.partition(".")[0]).__module__.split(".")[
            2:-1
        ]
        kind = rooms[0].replace("_", " ") if rooms else "classification"
        listed_models.append(KnownModel(name, kind, usual_input(name)))
    return tuple(listed_models)


def known_names(models: Any) -> list[str]:
    """Return the names of torchvision's models that can be imported: of detection models, the backbone."""
    detecting = models.list_models(module=models.detection)
    return [
        f"{name}.{BACKBONE}" if name in detecting else name
        for name in models.list_models()
    ]


def usual_input(name: str) -> InputSpec:
    """Return the input that a torchvision model's weights are made for. For a submodule it is that of the whole model,
    which is right for its first part."""
    models = import_torchvision("models")
    name = name.partition(".")[0]
    sizes = _CLIP if name in models.list_models(module=models.video) else _PICTURE
    try:
        crop = models.get_model_weights(name).DEFAULT.transforms().crop_size
    except (ValueError, AttributeError):
        if name in models.list_models(module=models.detection):
            return InputSpec(
                (2, *_SCENE)
            )  # of a last map of one place, one sample has no statistics
        return InputSpec((1, *sizes))
    crop = tuple(crop) if isinstance(crop, list | tuple) else (crop,)
    crop = crop * 2 if len(crop) == 1 else crop
    return InputSpec((1, *sizes[:-2], *crop))


def make_from_file(
    source: SourceSpec, arguments: Mapping[str, Any], where: str = ""
) -> nn.Module:
    """Run a user's file and construct its model. Only a child process calls this. Raises ModelImportError."""
    path = Path(source.where).resolve()
    top, name = _module_of(path)
    files = files_of(source, where)
    if files is None or not layer_files.allowed(files.key):
        raise ModelImportError(
            f"{path.name} is not trusted as it is now, so none of its code was run",
            "untrusted",
        )
    files.permit()
    sys.path[:0] = dict.fromkeys((str(top), str(path.parent)))
    mend_torchvision()
    try:
        with recording():
            module = own_imports.run_as(name, str(path))
        maker = getattr(module, source.name, None)
        if not callable(maker):
            there = (
                ", ".join(names_in(path.read_text("utf-8")))
                or "none that returns a model"
            )
            suffix = "" if maker is None else ", neither a class nor a function"
            description = f"has {'no ' if maker is None else ''}{source.name}{suffix}"
            raise ModelImportError(
                f"{path.name} {description}; it has {there}", "unknown_model"
            )
        if isinstance(maker, nn.Module) and not source.call and not arguments:
            return maker
        fitting(maker, f"{path.name}: {source.name}", "arguments", **arguments)
        with recording():  # of classes that are imported first where they are used
            model = maker(**arguments)
    except ModelImportError:
        raise
    except (Exception, SystemExit) as error:
        message = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise ModelImportError(
            f"{path.name}{line_in(error, path)}: {message}", code_of(error)
        ) from error
    if not isinstance(model, nn.Module):
        raise ModelImportError(
            f"{source} returns a {type(model).__name__}, not an nn.Module", "no_module"
        )
    return model


# --- Positional inputs


def positional(loaded: Loaded) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return a model and its positional tensors: the model itself if its arguments by name are the first that its
    forward takes, else one around it, whose `model` it is. Raises SourceError for arguments that are no tensors."""
    inputs = (*loaded.args, *loaded.kwargs.values())
    if not all(isinstance(tensor, Tensor) for tensor in inputs):
        raise SourceError("it takes inputs other than tensors, which a drawing cannot")
    names = [*inspect.signature(loaded.model.forward).parameters]
    if [*loaded.kwargs] == names[len(loaded.args) : len(inputs)]:
        return loaded.model, inputs
    by_order = sorted(
        loaded.kwargs,
        key=lambda name: names.index(name) if name in names else len(names),
    )
    if not loaded.args and by_order == names[: len(by_order)]:
        return loaded.model, tuple(loaded.kwargs[name] for name in by_order)
    return _called(loaded), inputs


def _called(loaded: Loaded) -> nn.Module:
    count, names = len(loaded.args), [*loaded.kwargs]

    def forward(self: Any, *tensors: Tensor) -> Any:
        return self.model(
            *tensors[:count], **dict(zip(names, tensors[count:], strict=True))
        )

    argument_names = [*inspect.signature(loaded.model.forward).parameters][:count]
    parameters = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        for name in (
            "self",
            *argument_names,
            *(f"x{at}" for at in range(len(argument_names), count)),
            *names,
        )
    ]
    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    kind: Any = type(
        f"Called{type(loaded.model).__name__}", (nn.Module,), {"forward": forward}
    )
    model: nn.Module = kind()
    model.model = loaded.model
    return model
