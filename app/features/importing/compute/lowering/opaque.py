"""Opaque nodes: a submodule as one node of the user's own class, with its recorded constructor arguments, verified.

Untraceable code runs as written. Its class becomes a custom layer, which the generated code imports.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn

from app.builder.catalog.catalog import Catalog, OpSpec, catalog
from app.builder.catalog.custom import CustomFile
from app.builder.catalog.custom_classes import LayerClass
from app.builder.params import ParamError, check_param
from app.builder.shapes.meta_calls import TorchCall
from app.features.importing.compute import train_eval
from app.features.importing.compute.lowering import (
    function_layers,
    normed_layers,
    package_classes,
)
from app.features.importing.compute.lowering.binding import BindingError, Bound
from app.features.importing.compute.lowering.constructor_args import (
    CONSTRUCTOR_ARGS,
    NoLiteral,
    constructor_args_of,
    recordable,
)
from app.features.importing.compute.lowering.modules import arguments_of
from app.features.importing.compute.lowering.parameter_order import wholly_frozen
from app.features.importing.compute.tracing.meta_evaluation import SEED
from app.source import layer_modules
from app.source.layer_files import LayerFileError, digest
from app.util import module_tree
from app.util.frozen import FrozenMap

_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
_OWN = frozenset(
    {"_parameters", "_buffers", "_modules", "training", CONSTRUCTOR_ARGS, *_HOOKS}
)


class OwnClasses:
    """The layers of the file that a model is made in. `classes` are those that it has run with, by their names; files
    of classes of installed packages are written into `folder`. `package` is the one whose relative imports the file
    needs, "" for none."""

    def __init__(
        self,
        file: CustomFile,
        classes: Mapping[str, Any],
        folder: Path | None = None,
        package: str = "",
    ) -> None:
        self.file, self._classes, self._folder, self._package = (
            file,
            classes,
            folder,
            package,
        )
        self._failed = ""
        self._packaged: dict[str, CustomFile] = {}  # by module

    def with_these(self, catalog: Catalog) -> Catalog:
        """Extend the catalog by the classes of the file and those of packages that became layers."""
        return catalog.plus(
            [
                spec
                for file in (self.file, *self._packaged.values())
                for spec in file.specs
            ]
        )

    def files_of(self, ops: Collection[str]) -> tuple[str, ...]:
        """List the files that a drawing with these ops needs."""
        files = (self.file, *self._packaged.values())
        return tuple(
            str(file.path)
            for file in files
            if any(spec.key in ops for spec in file.specs)
        )

    def stand_in(
        self, module: nn.Module, result: Any = None
    ) -> tuple[OpSpec, dict[str, Any]]:
        """Return the op and the parameters that reproduce a module. The op of a generated layer gives the tensors of a
        `result`, if that is a record. Raises BindingError with the obstacle."""
        if isinstance(module, torch.jit.ScriptModule):
            return self._scripted(module, result)
        kind = normed_layers.plain_class(module)
        arguments, norms = _arguments(module, kind), normed_layers.statements(module)
        if not self._is_own(kind):
            layer, spec, params = self._generated(kind, arguments, result, norms)
        elif self._folder is not None and package_classes.opened_in_layer(kind, result):
            layer, spec, params = self._generated(kind, arguments, result)
        else:
            try:
                layer, spec, params = self._own(kind, arguments)
            except BindingError as reason:
                if self._folder is None:
                    raise
                try:
                    layer, spec, params = self._generated(kind, arguments, result)
                except BindingError:
                    raise reason from None
        _check(module, spec, params, layer.name)
        return spec, params

    def _scripted(
        self, module: torch.jit.ScriptModule, result: Any
    ) -> tuple[OpSpec, dict[str, Any]]:
        """Return the op of a generated layer that has the TorchScript of a part. Raises BindingError."""
        if self._folder is None:
            raise BindingError(
                f"{module.original_name} is TorchScript, which holds no Python code"
            )
        label = function_layers.label_of(module)
        text = function_layers.layer_text(module, result)
        file = self._written(
            text, f"torch_jit_{module.original_name}_{digest(text)[:6]}"
        )
        _check(module, file.specs[0], {}, label)
        return file.specs[0], {}

    def _is_own(self, kind: type) -> bool:
        return (
            self._classes.get(kind.__name__) is kind
            and kind.__module__ == self.file.path.stem
        )

    def _own(
        self, kind: type, arguments: dict[str, Any]
    ) -> tuple[LayerClass, OpSpec, dict[str, Any]]:
        """Return a class of the file unchanged, its op and the arguments. Raises BindingError."""
        layer = self._own_layer(kind)
        if not self._failed:
            self._failed = self._load(self.file)
        if self._failed:
            raise BindingError(self._failed)
        spec = self.file.spec_of(layer)
        params, unfit = _params(arguments, spec)
        if unfit:
            name, why = next(iter(unfit.items()))
            raise BindingError(f"{kind.__name__} was constructed with {name}{why}")
        return layer, spec, params

    def _own_layer(self, kind: type) -> LayerClass:
        name, file = kind.__name__, self.file.name
        layer = next(
            (
                layer_class
                for layer_class in self.file.classes
                if layer_class.name == name
            ),
            None,
        )
        if layer is None and name.startswith("_"):
            raise BindingError(
                f"{name} begins with an underscore, so it is private to {file}"
            )
        if layer is None:
            raise BindingError(
                f"in {file}, {name} is not visibly a layer; write nn.Module among its bases"
            )
        if layer.reason:
            raise BindingError(f"{name} cannot be a layer: {layer.reason}")
        return layer

    def _generated(
        self,
        kind: type[nn.Module],
        arguments: dict[str, Any],
        result: Any,
        norms: tuple[str, ...] = (),
    ) -> tuple[LayerClass, OpSpec, dict[str, Any]]:
        """Return a class of an installed package, or of the file, in its generated file, which has the arguments that
        no form holds and applies `norms`, with its op and the other arguments."""
        if self._folder is None:
            raise BindingError(f"{kind.__name__} is not a class of {self.file.name}")
        if self._package and kind.__module__.partition(".")[0] == self._package:
            raise BindingError(
                f"{kind.__name__} is in the package {self._package}, which a project does not include"
            )
        fixed = {
            name: value.value
            for name, value in arguments.items()
            if isinstance(value, NoLiteral)
        }
        while True:
            files = (self.file, *self._packaged.values())
            hashes_by_module = {
                custom_file.module: custom_file.file.sha256
                for custom_file in files
                if custom_file.file is not None
            }
            beside = self.file.path.resolve().parent
            source_file = self.file.file if self._is_own(kind) else None
            file = package_classes.layer_of(
                kind,
                self._folder,
                beside,
                fixed,
                hashes_by_module,
                result,
                norms,
                source_file,
            )
            if file.problem:
                raise BindingError(file.problem)
            layer = file.classes[-1]  # after those of the file that it is a class of
            if layer.reason:
                raise BindingError(f"{kind.__name__} cannot be a layer: {layer.reason}")
            spec = file.spec_of(layer)
            params, unfit = _params(
                {name: value for name, value in arguments.items() if name not in fixed},
                spec,
            )
            if not unfit:
                break
            fixed |= {name: arguments[name] for name in unfit}
        if file.module not in self._packaged:
            if failed := self._load(file):
                raise BindingError(failed)
            self._packaged[file.module] = file
        return layer, spec, params

    def function(self, node: fx.Node, values: Mapping[fx.Node, Any]) -> Bound:
        """Return the call of a generated layer for a function of torch that is no op. Raises BindingError."""
        if self._folder is None:
            raise BindingError(f"{node.target} is not among the ops")
        call = function_layers.layer_of(node, values)
        return call.bound(self._written(call.text, f"torch_{call.name}").specs[0].key)

    def by_mode(self) -> str | None:
        """Return the op of a generated layer that passes on one of two values by the mode; None without a folder."""
        return (
            self._written(train_eval.BY_MODE, "by_mode").specs[0].key
            if self._folder is not None
            else None
        )

    def _written(self, text: str, name: str) -> CustomFile:
        """Return the file of a generated layer with this text. Raises BindingError."""
        assert self._folder is not None
        files = (self.file, *self._packaged.values())
        hashes_by_module = {
            custom_file.module: custom_file.file.sha256
            for custom_file in files
            if custom_file.file is not None
        }
        file = package_classes.written(text, name, self._folder, hashes_by_module)
        if file.problem or file.classes[0].reason:
            raise BindingError(file.problem or file.classes[0].reason)
        if file.module not in self._packaged:
            if failed := self._load(file):
                raise BindingError(failed)
            self._packaged[file.module] = file
        return file

    def _load(self, file: CustomFile) -> str:
        """Import a file in isolation; return the error, "" if it loads."""
        assert file.file is not None
        try:
            with _without_neighbours(self.file.path.parent):
                layer_modules.load(file.file)
        except LayerFileError as error:
            return str(error)
        return ""


@contextlib.contextmanager
def _without_neighbours(folder: Path) -> Iterator[None]:
    """Hide the modules next to the file, which a layer file cannot import either."""
    path, modules, hidden = sys.path[:], dict(sys.modules), folder.resolve()
    sys.path[:] = [entry for entry in path if Path(entry).resolve() != hidden]
    for name, module in modules.items():
        file = getattr(module, "__file__", None)
        if file and _folder_of(file) == hidden:
            del sys.modules[name]
    try:
        yield
    finally:
        sys.path[:] = path
        sys.modules.update(modules)


@cache
def _folder_of(file: str) -> Path:
    """Return the real folder of a loaded module's file; cached, since each is a walk over the disk."""
    return Path(file).resolve().parent


def _arguments(module: nn.Module, kind: type[nn.Module]) -> dict[str, Any]:
    """Return the arguments that a module of a class was constructed with, by name. Raises BindingError if they are
    unknown."""
    recorded, signature = constructor_args_of(module), inspect.signature(kind.__init__)
    if recorded is None and kind.__module__.startswith("torch.nn.modules"):
        layer = catalog().get(f"nn.{kind.__name__}")
        if layer is not None:
            return arguments_of(module, layer.key, layer)
    if recorded is None:
        return _attributes(module, signature)
    bound = signature.bind(module, *recorded.args, **recorded.kwargs)
    _, *arguments = bound.arguments.items()
    return {
        argument: value
        for argument, value in arguments
        if not _is_default(value, signature.parameters[argument])
    }


def _attributes(module: nn.Module, signature: inspect.Signature) -> dict[str, Any]:
    """Return the arguments that a module keeps as attributes of these names, for one that was made unrecorded."""
    arguments: dict[str, Any] = {}
    for name, argument in list(signature.parameters.items())[1:]:
        value = vars(module).get(name, argument.default)
        if argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
            continue
        if value is argument.empty:
            raise BindingError(
                f"the constructor arguments of {type(module).__name__} are unknown"
            )
        if value is not argument.default:
            arguments[name] = recordable(value)
    return arguments


def _is_default(value: Any, argument: inspect.Parameter) -> bool:
    return (
        isinstance(value, NoLiteral)
        and value.value is not None
        and value.value is argument.default
    )


def _params(
    arguments: dict[str, Any], spec: OpSpec
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the parameters of a node, and the arguments that no node holds, with the reason."""
    params: dict[str, Any] = {}
    unfit: dict[str, str] = {}
    for argument, value in arguments.items():
        param = spec.param(argument)
        if isinstance(value, NoLiteral):
            unfit[argument] = f"={value.words}, which a project cannot store"
        elif param is None or param.call:
            unfit[argument] = ", which cannot be edited here"
        else:
            try:
                check_param(param, value)
            except ParamError as error:
                unfit[argument] = f": {error}"
                continue
            if (
                param.required
                or value != param.default
                or type(value) is not type(param.default)
            ):
                params[argument] = value
    return params, unfit


# --- Whether a reconstructed module is the same


def _check(
    module: nn.Module, spec: OpSpec, params: dict[str, Any], made_as: str
) -> None:
    """Make the layer as the drawing will, and compare it with the module of the model. `made_as` is the name of its
    class there."""
    name = module_tree.class_name(module)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(SEED)
            rebuilt = TorchCall.resolve(spec, FrozenMap(params)).target
            if wholly_frozen(module):  # a node can be frozen too
                rebuilt.requires_grad_(False)
    except Exception as error:  # the constructor's message is the reason
        raise BindingError(
            f"{name} cannot be constructed again: {type(error).__name__}: {error}"
        ) from error
    theirs, mine = (
        dict(_facts(compared, "", 0, _tensors_of(compared)))
        for compared in (module, rebuilt)
    )
    if normed_layers.plain_name(mine["its class"]) == made_as:
        mine["its class"] = theirs["its class"]
    for location in dict.fromkeys((*theirs, *mine)):
        if (
            location not in theirs
            or location not in mine
            or not _equal(theirs[location], mine[location])
        ):
            loose = location.endswith(_LOOSE)
            reason = (
                "is in no state_dict and differs in a new instance"
                if loose
                else "was changed after construction"
            )
            raise BindingError(f"{name}: {location.removesuffix(_LOOSE)} {reason}")


_LOOSE = " (not registered)"


def _facts(
    module: nn.Module, location: str, depth: int, tensor_ids: frozenset[int]
) -> Iterator[tuple[str, Any]]:
    """Yield comparable facts about the tensors of a module, other than the values of its parameters and buffers."""
    yield location or "its class", module_tree.class_name(module)
    dot = f"{location}." if location else ""
    first_names: dict[int, str] = {}
    for name, tensor in (*module._parameters.items(), *module._buffers.items()):
        hooked = bool(getattr(tensor, "_backward_hooks", None))
        shape = (
            None
            if tensor is None
            else (tuple(tensor.shape), tensor.dtype, tensor.requires_grad, hooked)
        )
        yield dot + name, shape
        if tensor is not None and name in module._non_persistent_buffers_set:
            yield f"{dot}{name}{_LOOSE}", tensor
    if not depth:
        for name, tensor in (
            *module_tree.named_parameters(module, remove_duplicate=False),
            *module_tree.named_buffers(module),
        ):
            if first_names.setdefault(id(tensor), name) != name:
                yield f"{name} (shared)", first_names[id(tensor)]
    yield f"{dot}hooks", tuple(len(module.__dict__.get(hooks, ())) for hooks in _HOOKS)
    hidden = normed_layers.computed_at_each_call(module) | _OWN
    scripted = isinstance(
        module, torch.jit.ScriptModule
    )  # whose values are all in its archive
    for name, value in module.__dict__.items():
        if not scripted and name not in hidden:
            yield from _attribute_facts(value, f"{dot}{name}", depth, tensor_ids)
    for name, inner in module._modules.items():
        if inner is not None and depth < 64:
            yield from _facts(inner, dot + name, depth + 1, tensor_ids)


def _attribute_facts(
    value: Any, location: str, depth: int, tensor_ids: frozenset[int]
) -> Iterator[tuple[str, Any]]:
    """Yield the tensors of an attribute that torch does not register."""
    if isinstance(value, torch.Tensor):
        if value.is_leaf and id(value) not in tensor_ids:
            yield location + _LOOSE, value
    elif isinstance(value, nn.Module) and depth < 64:
        for name, tensor in (
            *module_tree.named_parameters(value),
            *module_tree.named_buffers(value),
        ):
            if id(tensor) not in tensor_ids:
                yield f"{location}.{name}{_LOOSE}", tensor
    elif isinstance(value, list | tuple | dict) and depth < 64:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from _attribute_facts(
                item, f"{location}[{key!r}]", depth + 1, tensor_ids
            )


def _tensors_of(module: nn.Module) -> frozenset[int]:
    """Return the ids of all parameters and buffers, for attributes that alias them."""
    return frozenset(
        map(id, (*module_tree.parameters(module), *module_tree.buffers(module)))
    )


def _equal(first: Any, other: Any) -> bool:
    if isinstance(first, torch.Tensor) and isinstance(other, torch.Tensor):
        return (
            first.shape == other.shape
            and first.dtype == other.dtype
            and torch.equal(first, other)
        )
    return type(first) is type(other) and bool(first == other)
