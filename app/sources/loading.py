"""Make the model that a source names, with example inputs. Runs code of packages, and the user's own once trusted."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from msgspec import Struct
from msgspec.structs import replace
from torch import Tensor, nn

from app.source import layer_files, own_files, own_imports, raised, switches
from app.source.own_files import OwnFiles
from app.sources.examples import (
    by_position,
    called_with,
    dtype_of,
    example,
    from_file,
    needed_arguments,
    proposals,
)
from app.sources.finding import file_of, files_of, package_of
from app.sources.index_ranges import INTEGERS, attempt, ranges_of
from app.sources.spec import (
    COLLECTIONS,
    ArgumentsError,
    InputsNeededError,
    InputSpec,
    ModelRaisedError,
    SourceError,
    SourceSpec,
    adapters,
    parse_example,
)
from app.util import module_tree
from app.util.torchvision_import import import_torchvision, mend_torchvision

PACKAGES = {
    "torchvision": "torchvision",
    "timm": "timm",
    "hf": "transformers",
    "diffusers": "diffusers",
}
TRIAL = 1 << 28  # bytes of weights of a model that is copied for a trial
LARGEST = (
    1 << 31
)  # bytes of weights: a model of a configuration that has more is made without its weights


class Loaded(Struct):
    """A model and its example inputs; `targets` are inputs by name that it takes in train mode only. `lazy` says that
    its first call gave layers their sizes. `guessed` describes the inputs whose sizes or values nobody has given, and
    `refusal` says what the model raised with inputs that are all guessed. `switched` says which of torch's switches its
    file has turned."""

    model: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    targets: dict[str, Any] = {}
    lazy: bool = False
    guessed: tuple[InputSpec, ...] = ()
    refusal: str = ""
    switched: tuple[str, ...] = ()

    def named(self, train: bool) -> dict[str, Any]:
        """Return the inputs by name for one of its modes."""
        return {**self.kwargs, **(self.targets if train else {})}

    @property
    def remark(self) -> str:
        """What was guessed, and the option that gives it, and what its file has switched; "" for nothing."""
        return " ".join(filter(None, (self._guess, *self.switched)))

    @property
    def _guess(self) -> str:
        if not self.guessed:
            return ""
        options = " ".join(f"--input {spec}" for spec in self.guessed)
        if self.refusal:
            return f"Its inputs were guessed, and it raised with them: {options}. Give its own in the same form."
        return f"Guessed inputs: {options}"


def load(
    source: SourceSpec,
    arguments: Mapping[str, Any],
    inputs: tuple[InputSpec, ...] = (),
    meta: bool = False,
    folder: str = "",
    example_file: str = "",
) -> Loaded:
    """Build a model, on the meta device if `meta`, and its example inputs.

    They are those of `example_file`, of `inputs`, or proposed. `folder` comes first on Python's path.
    Raises SourceError, also for the user's own code that is not trusted.
    """
    before = switches.current()
    with _on(meta):
        try:
            _let_run(source, folder)
            loaded = _LOADERS.get(source.kind, _adapted)(source, arguments)
        except SourceError:
            raise
        except own_imports.NotReviewedError as error:
            raise SourceError(str(error)) from error
        except ModuleNotFoundError as error:
            if source.kind == "module" and f"{source.where}.".startswith(
                f"{error.name}."
            ):
                raise SourceError(
                    f"there is no module {source.where}: {error}"
                ) from error
            raise ModelRaisedError(
                f"{source} cannot be made: {raised.sentence(error)}"
            ) from error
        except (Exception, SystemExit) as error:  # whatever a constructor raises
            raise ModelRaisedError(
                f"{source} cannot be made: {raised.sentence(error)}"
            ) from error
        after, file = (
            switches.current(),
            file_of(source, folder) if source.own_code else None,
        )
        loaded.switched = tuple(
            f"{sentence}." for sentence in after.turned_since(before, file)
        )
        if before.gradients and not after.gradients:
            loaded.switched += ("Gradients are on here.",)
        torch.set_grad_enabled(before.gradients)
        if example_file:
            loaded.args, loaded.kwargs = from_file(
                parse_example(example_file), loaded.model, _imported_example
            )
        elif inputs:
            _describe(loaded, inputs)
        elif not (loaded.args or loaded.kwargs):
            _propose(source, loaded)
        elif source.kind in COLLECTIONS:
            _fit(
                loaded,
                [InputSpec((), name=name) for name in loaded.kwargs],
                [*loaded.kwargs.values()],
                said=False,
            )
        if is_lazy(loaded.model):
            loaded.lazy = True
            _initialize(loaded)
    return loaded


def _describe(loaded: Loaded, inputs: Sequence[InputSpec]) -> None:
    """Give a model inputs of these descriptions."""
    floats = dtype_of(loaded.model)
    tensors = [_beside(loaded.model, example(spec, floats)) for spec in inputs]
    loaded.args, loaded.kwargs = called_with(inputs, tensors)
    _fit(loaded, inputs, tensors)


def _beside(model: nn.Module, tensor: Tensor) -> Tensor:
    """Return the tensor on the accelerator that a model's own code has put it on; elsewhere as it is."""
    devices = {parameter.device for parameter in module_tree.parameters(model)}
    own = [device for device in devices if device.type not in ("cpu", "meta")]
    return tensor.to(own[0]) if own else tensor


def _fit(
    loaded: Loaded,
    inputs: Sequence[InputSpec],
    tensors: Sequence[Any],
    said: bool = True,
) -> None:
    """Give the integers that nobody has given the values of the range that the model uses them in."""
    free = [
        (spec, tensor)
        for spec, tensor in zip(inputs, tensors, strict=True)
        if isinstance(tensor, Tensor)
        and tensor.dtype in INTEGERS
        and not spec.values
        and tensor.device.type != "meta"
    ]
    if not free or is_lazy(loaded.model):
        return
    ranges = ranges_of(
        trial_copy(loaded.model),
        loaded.args,
        loaded.kwargs,
        [tensor for _, tensor in free],
    )
    if said:
        loaded.guessed = tuple(
            replace(spec, values=str(bounds or "0..1"))
            for (spec, _), bounds in zip(free, ranges, strict=True)
        )


def _propose(source: SourceSpec, loaded: Loaded) -> None:
    """Give a model the first proposed inputs that it accepts.

    Raises InputsNeededError where none are proposed, or where it accepts none of several arguments.
    """
    model = loaded.model
    needed = needed_arguments(model)
    if needed is not None and not needed:
        return
    on_meta = any(
        parameter.device.type == "meta" for parameter in module_tree.parameters(model)
    )
    trial = model if on_meta else trial_copy(model)
    first: tuple[InputSpec, ...] = ()
    error: BaseException | None = None
    for inputs in proposals(model):
        _describe(loaded, inputs)
        values = {spec.name: spec.values for spec in loaded.guessed}
        loaded.guessed = tuple(
            replace(spec, values=values.get(spec.name, spec.values)) for spec in inputs
        )
        loaded.args, loaded.kwargs = by_position(model, loaded.kwargs)
        raised_now = attempt(trial, loaded.args, loaded.kwargs)
        if raised_now is None:
            return
        first, error = first or inputs, error or raised_now
    names = tuple(argument.name for argument in needed or ())
    guesses = (
        tuple(map(str, first))
        or tuple(f"{name}=1x3x32x32" for name in names)
        or ("1x3x32x32",)
    )
    if error is None or len(names) > 1 or len(first) > 1:
        options = " ".join(f"--input {guess}" for guess in guesses)
        why = (
            f"; with these, which are guessed, it raised {raised.sentence(error)}"
            if error is not None
            else ""
        )
        raise InputsNeededError(
            f"describe the inputs of {source}, for instance {options}{why}",
            names,
            guesses,
        )
    _describe(loaded, first)
    loaded.args, loaded.kwargs = by_position(model, loaded.kwargs)
    loaded.guessed, loaded.refusal = first, raised.sentence(error)


def trial_copy(model: nn.Module) -> nn.Module:
    """Return a copy to call, so that what a call changes in the model stays as it is; the model itself where it cannot
    be copied or is large."""
    if weight_bytes(model) > TRIAL:
        return model
    try:
        return module_tree.copied(model)
    except Exception:  # whatever an attribute raises
        return model


def is_lazy(model: nn.Module) -> bool:
    """Return whether the sizes of some layers are to come from a first call, as those of `nn.LazyLinear`."""
    return any(
        map(
            torch.nn.parameter.is_lazy,
            (*module_tree.parameters(model), *module_tree.buffers(model)),
        )
    )


def weight_bytes(model: nn.Module) -> int:
    """Return the bytes of its parameters and buffers, without those whose sizes are not known yet."""
    tensors = (*module_tree.parameters(model), *module_tree.buffers(model))
    return sum(
        tensor.numel() * tensor.element_size()
        for tensor in tensors
        if not torch.nn.parameter.is_lazy(tensor)
    )


def _initialize(loaded: Loaded) -> None:
    """Call a model once, so that its lazy layers have their sizes; one that raises is left as it is by then."""
    modes = [(module, module.training) for module in module_tree.modules(loaded.model)]
    module_tree.set_mode(loaded.model, False)
    with contextlib.suppress(Exception, SystemExit), torch.no_grad():
        loaded.model(*loaded.args, **loaded.kwargs)
    for module, mode in modes:
        module.training = mode


def _on(meta: bool) -> contextlib.AbstractContextManager[object]:
    return torch.device("meta") if meta else contextlib.nullcontext()


# --- The user's own


def _from_file(source: SourceSpec, arguments: Mapping[str, Any]) -> Loaded:
    """Run a file, as a module of its package where it has one, so that its relative imports work."""
    path = Path(source.where).resolve()
    if not path.is_file():
        raise SourceError(f"there is no file {source.where}")
    return _build(source, _imported_file(path), arguments)


def _imported_example(path: Path) -> Any:
    """Import the file of an example, which is reviewed by itself."""
    path = path.resolve()
    _permit(own_files.read(path, package_of(path)[1]))
    return _imported_file(path)


def _imported_file(path: Path) -> Any:
    path = path.resolve()
    _, name = package_of(path)
    module = _imported(name)
    if Path(getattr(module, "__file__", None) or "").resolve() != path:
        raise SourceError(
            f"{path.name} has the name of another module that is imported already ({name}): rename the file"
        )
    return module


def _from_module(source: SourceSpec, arguments: Mapping[str, Any]) -> Loaded:
    return _build(source, _imported(source.where), arguments)


def _let_run(source: SourceSpec, folder: str) -> None:
    """Let the user's files of a source be imported, as they are now. Raises SourceError if they are not trusted."""
    files = files_of(source, folder)
    if files is not None:
        _permit(files)


def _permit(files: OwnFiles | None) -> None:
    if files is None or not layer_files.allowed(files.key):
        name = files.entry.name if files is not None else "the file"
        raise SourceError(
            f"{name} is not trusted as it is now, so none of its code was run: open the model again"
        )
    files.permit()


def _exported(source: SourceSpec, arguments: Mapping[str, Any]) -> Loaded:
    """Load an exported program with its own example inputs. That unpickles parts of the file."""
    if not source.call:
        raise SourceError(
            f"loading {source} can run code that the file contains; review its origin, then trust it"
        )
    if arguments:
        raise SourceError(f"{source} takes no constructor arguments")
    path = Path(source.where).resolve()
    if not path.is_file():
        raise SourceError(f"there is no file {source.where}")
    program = torch.export.load(path)
    args, kwargs = program.example_inputs or ((), {})
    model = program.module()
    model.train = lambda mode=True: model  # type: ignore[method-assign]  # it has one mode, and raises if asked
    return Loaded(model, tuple(args), dict(kwargs))


def _described(source: SourceSpec, arguments: Mapping[str, Any]) -> Loaded:
    raise SourceError(
        f"{source} can only be viewed: tapedeck draw shows the graph that it describes"
    )


def _imported(name: str) -> Any:
    mend_torchvision()
    return importlib.import_module(name)


def _build(source: SourceSpec, module: Any, arguments: Mapping[str, Any]) -> Loaded:
    maker: Any = module
    for attribute in source.name.split("."):
        maker = getattr(maker, attribute, None)
    if isinstance(maker, nn.Module) and not source.call:
        return Loaded(maker)
    if not callable(maker):
        there = ", ".join(_makers(module)) or "none that makes a model"
        raise SourceError(
            f"{source.where} has no class or function {source.name}; it has {there}"
        )
    _check_arguments(source, maker, arguments)
    return _loaded(source, maker(**arguments))


def _check_arguments(
    source: SourceSpec, maker: Any, arguments: Mapping[str, Any]
) -> None:
    """Raise SourceError with the names to give, where a class or function cannot be called with these arguments."""
    try:
        signature = inspect.signature(maker)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(**arguments)
        return
    except TypeError as error:
        kinds = (
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            inspect.Parameter.KEYWORD_ONLY,
        )
        named = {
            parameter.name: parameter
            for parameter in signature.parameters.values()
            if parameter.kind in kinds
        }
        message = str(error)
    unknown = [name for name in arguments if name not in named]
    missing = [
        name
        for name, parameter in named.items()
        if parameter.default is parameter.empty and name not in arguments
    ]
    if not unknown and missing:
        example_arguments = ", ".join(
            [*(f"{json.dumps(name)}: …" for name in (*arguments, *missing))]
        )
        raise ArgumentsError(
            f"{source} needs {', '.join(missing)}: give its arguments as JSON, {{{example_arguments}}}"
        )
    if unknown:
        message = f"takes no {', '.join(unknown)}; its arguments are {', '.join(named) or 'none'}"
    raise ArgumentsError(f"{source} {message}")


def _loaded(source: SourceSpec, returned: Any) -> Loaded:
    """Return the result of a user's function or an adapter: a module, or it with a tuple and a dictionary of inputs.
    Raises SourceError for anything else."""
    parts = (
        returned
        if isinstance(returned, tuple) and 0 < len(returned) < 4
        else (returned,)
    )
    if not isinstance(parts[0], nn.Module):
        kind = type(parts[0]).__name__
        raise SourceError(
            f"{source} returns {'a tuple that begins with ' * (parts is returned)}{kind}; expected an nn.Module, or a "
            "tuple of it, its positional inputs and a dictionary of the others"
        )
    args = parts[1] if len(parts) > 1 else ()
    kwargs = parts[2] if len(parts) > 2 else {}
    if not isinstance(args, tuple | list) or not isinstance(kwargs, Mapping):
        raise SourceError(
            f"{source} must return its positional inputs as a tuple, and keyword inputs as a dictionary"
        )
    return Loaded(parts[0], tuple(args), dict(kwargs))


def _makers(module: Any) -> Iterator[str]:
    for name, value in vars(module).items():
        if (
            isinstance(value, type)
            and issubclass(value, nn.Module)
            and value.__module__ == module.__name__
        ):
            yield name
        elif (
            inspect.isfunction(value)
            and value.__module__ == module.__name__
            and not name.startswith("_")
        ):
            yield f"{name}()"


def _adapted(source: SourceSpec, arguments: Mapping[str, Any]) -> Loaded:
    """Ask an installed adapter: a callable of a name and keyword arguments, which returns a module, or a module and its
    example inputs as a tuple and a dictionary."""
    entry: Any = adapters().get(source.kind)
    if entry is None:
        raise SourceError(f"no adapter for {source.kind} is installed")
    return _loaded(source, entry.load()(source.name, **arguments))


# --- Installed collections


def _package(name: str, source: SourceSpec) -> Any:
    mend_torchvision()
    try:
        with _installed_alone():
            return importlib.import_module(name)
    except ImportError as error:
        raise SourceError(f"{source} needs the package {name}: {error}") from error


@contextlib.contextmanager
def _installed_alone() -> Iterator[None]:
    """Import without the current folder, which `python -m` puts on Python's path: what is there is the user's own code,
    which is not trusted."""
    here, before = Path.cwd(), list(sys.path)
    sys.path[:] = [entry for entry in before if Path(entry or ".").resolve() != here]
    try:
        yield
    finally:
        sys.path[:] = [*before, *(entry for entry in sys.path if entry not in before)]


def _timm(source: SourceSpec, arguments: Mapping[str, Any]) -> Loaded:
    timm = _package("timm", source)
    if not timm.is_model(source.name):
        near = timm.list_models(f"*{source.name[:6]}*")[:6]
        raise SourceError(
            f"timm has no model {source.name}{f'; there are {chr(44).join(near)}' if near else ''}"
        )
    model = timm.create_model(source.name, pretrained=False, **arguments)
    sizes = getattr(model, "pretrained_cfg", {}).get("input_size", (3, 224, 224))
    return Loaded(model, (example(InputSpec((1, *sizes))),))


def _torchvision(source: SourceSpec, arguments: Mapping[str, Any]) -> Loaded:
    models = import_torchvision("models")
    name, _, submodule_path = source.name.partition(".")
    if name not in models.list_models():
        near = [
            model_name
            for model_name in models.list_models()
            if model_name.startswith(name[:4])
        ][:8]
        raise SourceError(
            f"torchvision has no model {name}{f'; there are {chr(44).join(near)}' if near else ''}"
        )
    model_arguments = {"weights": None, **arguments}
    if (
        "weights_backbone"
        in inspect.signature(models.get_model_builder(name)).parameters
    ):
        model_arguments = {"weights_backbone": None, **model_arguments}
    if weight_arguments := [
        name
        for name in ("weights", "weights_backbone")
        if model_arguments.get(name) is not None
    ]:
        raise SourceError(
            f"weights are not downloaded; leave {' and '.join(weight_arguments)} out of the arguments"
        )
    model = models.get_model(name, **model_arguments).get_submodule(submodule_path)
    if submodule_path:
        return Loaded(model)
    if name in models.list_models(module=models.detection):
        picture = example(InputSpec((3, 320, 320)))
        several = {
            "images": [picture, picture],
            "targets": [_boxes(model)] * 2,
        }  # of one a batch norm learns nothing
        return Loaded(model, (), {"images": [picture]}, several)
    sizes = (
        (3, 16, 112, 112)
        if name in models.list_models(module=models.video)
        else (3, 224, 224)
    )
    with contextlib.suppress(ValueError, AttributeError):
        crop = models.get_model_weights(name).DEFAULT.transforms().crop_size
        crop = tuple(crop) if isinstance(crop, list | tuple) else (crop,)
        sizes = (*sizes[:-2], *(crop * 2 if len(crop) == 1 else crop))
    return Loaded(model, (example(InputSpec((1, *sizes))),))


def _boxes(model: nn.Module) -> dict[str, Any]:
    """Return the target of a picture of 320 by 320 for a detection model: two boxes, with masks or keypoints where it
    predicts those."""
    heads = getattr(model, "roi_heads", None)
    target = {
        "boxes": torch.tensor(
            [[40.0, 40.0, 200.0, 160.0], [120.0, 100.0, 280.0, 300.0]]
        ),
        "labels": torch.ones(2, dtype=torch.int64),
    }
    if getattr(heads, "mask_predictor", None) is not None:
        target["masks"] = torch.zeros(2, 320, 320, dtype=torch.uint8)
        target["masks"][0, 40:160, 40:200] = 1
        target["masks"][1, 100:300, 120:280] = 1
    predictor = getattr(heads, "keypoint_predictor", None)
    if predictor is not None:
        points = predictor.kps_score_lowres.out_channels
        middles = torch.tensor([[120.0, 100.0, 1.0], [200.0, 200.0, 1.0]])
        target["keypoints"] = middles[:, None].repeat(1, points, 1)
    return target


def _transformers(source: SourceSpec, arguments: Mapping[str, Any]) -> Loaded:
    """Make a model from a configuration: of a folder, of the local cache, or the default one of a model type."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    transformers = _package("transformers", source)
    if source.name in transformers.CONFIG_MAPPING and not Path(source.name).is_dir():
        config = transformers.CONFIG_MAPPING[source.name](**arguments)
    else:
        try:
            config = transformers.AutoConfig.from_pretrained(
                source.name, local_files_only=True, trust_remote_code=False, **arguments
            )
        except OSError as error:
            raise SourceError(
                f"{source.name} is neither a folder with a config.json, nor in the local cache, nor a model type of "
                "transformers; nothing is downloaded"
            ) from error
    kind = next(
        (getattr(transformers, name, None) for name in config.architectures or ()), None
    )
    if kind is None and type(config) not in transformers.MODEL_MAPPING:
        raise SourceError(_classes_of(source, transformers, config))
    model = (
        kind(config) if kind is not None else transformers.AutoModel.from_config(config)
    )
    return Loaded(model, (), _inputs_of(model, config))


def _classes_of(source: SourceSpec, transformers: Any, config: Any) -> str:
    """Say which class to name of a configuration whose type has no plain model."""
    package = type(config).__module__.rpartition(".")[0]
    with contextlib.suppress(ImportError):
        importlib.import_module(f"{package}.modeling_{package.rpartition('.')[2]}")
    modules = [
        module
        for name, module in sys.modules.items()
        if name.startswith(f"{package}.modeling_")
    ]
    there = {
        name
        for module in modules
        for name, attribute in vars(module).items()
        if isinstance(attribute, type)
        and issubclass(attribute, nn.Module)
        and getattr(attribute, "config_class", None) is type(config)
        and getattr(transformers, name, None) is attribute
        and not name.endswith("PreTrainedModel")
    }
    message = f"{source} has no plain model in transformers"
    if not there:
        return (
            f"{message}, and no class of its own: open the model that it is a part of"
        )
    named = json.dumps({"architectures": [min(there)]})
    others = f". It has {', '.join(sorted(there))}" if len(there) > 1 else ""
    return f"{message}; name a class of it in the arguments, {named}{others}"


def _inputs_of(model: Any, config: Any) -> dict[str, Any]:
    """Propose inputs by the names that the forward of a transformers model takes and the sizes of its configuration."""
    names = inspect.signature(model.forward).parameters
    main = getattr(model, "main_input_name", "input_ids")
    text = getattr(config, "text_config", config)
    vision = getattr(config, "vision_config", config)
    size = (
        getattr(vision, "image_size", None)
        or _size_of_processor(getattr(config, "name_or_path", ""))
        or 224
    )
    size = tuple(size) if isinstance(size, list | tuple) else (size, size)
    frames = (
        (config.num_frames,)
        if hasattr(config, "tubelet_size") and getattr(config, "num_frames", None)
        else ()
    )
    specs = {
        "input_ids": InputSpec((1, 16), "int64"),
        "pixel_values": InputSpec(
            (1, *frames, getattr(vision, "num_channels", None) or 3, *size)
        ),
        "input_values": InputSpec((1, 16000)),
        "input_features": InputSpec(
            (
                1,
                getattr(config, "num_mel_bins", 80),
                2 * getattr(config, "max_source_positions", 1500),
            )
        ),
        "decoder_input_ids": InputSpec((1, 8), "int64"),
    }
    input_names = {
        main,
        *(("pixel_values",) if vision is not config else ()),
        *(("input_ids",) if text is not config else ()),
    }
    if getattr(config, "is_encoder_decoder", False):
        input_names.add("decoder_input_ids")
    return {
        name: example(spec)
        for name, spec in specs.items()
        if name in input_names and name in names
    }


def _size_of_processor(folder: str) -> int | tuple[int, int] | None:
    """Return the size to which the processor of a model's folder brings pictures; None if it does not say."""
    try:
        plain = json.loads(Path(folder, "preprocessor_config.json").read_text("utf-8"))
        size = plain.get("crop_size") if plain.get("do_center_crop") else None
        size = size or plain.get("size") or {}
        if isinstance(size, int):
            return size
        return (
            (size["height"], size["width"])
            if "height" in size
            else size.get("shortest_edge")
        )
    except (OSError, ValueError, AttributeError):
        return None


def _diffusers(source: SourceSpec, arguments: Mapping[str, Any]) -> Loaded:
    """Build one of diffusers' model classes, or the model of a folder's config.json."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    diffusers = _package("diffusers", source)
    kind, config = getattr(diffusers, source.name, None), dict(arguments)
    if kind is None and Path(source.name, "config.json").is_file():
        config = {
            **json.loads(Path(source.name, "config.json").read_text("utf-8")),
            **arguments,
        }
        kind = getattr(diffusers, config.get("_class_name", ""), None)
    if kind is None:
        raise SourceError(
            f"diffusers has no class {source.name}, and no folder of that name has a config.json"
        )
    model = kind.from_config(config) if hasattr(kind, "from_config") else kind(**config)
    if latents := _latents_of(model):
        return Loaded(model, (), latents)
    return Loaded(model)


def _latents_of(model: Any) -> dict[str, Any]:
    """Propose the inputs of a diffusion model by the names that its forward takes and the sizes of its configuration;
    none if it needs another."""
    config = model.config
    size, channels = (
        getattr(config, "sample_size", None) or 32,
        getattr(config, "in_channels", None) or 4,
    )
    picture = InputSpec(
        (1, channels, *(size if isinstance(size, list | tuple) else (size, size)))
    )
    text_width = getattr(config, "cross_attention_dim", None) or getattr(
        config, "joint_attention_dim", None
    )
    text_width = text_width[0] if isinstance(text_width, list | tuple) else text_width
    pooled, axes = (
        getattr(config, "pooled_projection_dim", None),
        len(getattr(config, "axes_dims_rope", ())),
    )
    specs = {
        "sample": picture,
        "hidden_states": picture
        if getattr(config, "sample_size", None)
        else InputSpec((1, 16, channels)),
        "timestep": InputSpec((1,), "int64"),
        "class_labels": InputSpec((1,), "int64")
        if getattr(config, "num_embeds_ada_norm", None)
        else None,
        "encoder_hidden_states": InputSpec((1, 8, text_width)) if text_width else None,
        "pooled_projections": InputSpec((1, pooled)) if pooled else None,
        "img_ids": InputSpec((16, axes)),
        "txt_ids": InputSpec((8, axes)),
    }
    inputs = {
        name: spec
        for name in inspect.signature(model.forward).parameters
        if (spec := specs.get(name)) is not None
    }
    if (
        not {argument.name for argument in needed_arguments(model) or ()}
        <= inputs.keys()
    ):
        return {}
    return {name: example(input_spec) for name, input_spec in inputs.items()}


_LOADERS: dict[str, Callable[[SourceSpec, Mapping[str, Any]], Loaded]] = {
    "file": _from_file,
    "module": _from_module,
    "torchvision": _torchvision,
    "timm": _timm,
    "hf": _transformers,
    "diffusers": _diffusers,
    "pt2": _exported,
    "onnx": _described,
}
