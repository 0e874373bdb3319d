"""Evaluation of calls on meta tensors, which appear to traced code as tensors on the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.utils._pytree import tree_flatten, tree_map

from app.builder.catalog.catalog import OpSpec
from app.builder.shapes.meta_shortcuts import meta_result
from app.features.importing.compute.lowering.binding import signature_of
from app.features.importing.compute.tracing.frames import (
    DEPENDS,
    Apart,
    DataDependentError,
    InputNotAcceptedError,
    TraceError,
    first_sentence,
    not_taken,
)
from app.features.importing.compute.tracing.proxies import (
    FACTORIES,
    Training,
    plain_flag,
)
from app.features.importing.compute.tracing.records import (
    is_record,
    plain,
    refilled,
    without_values,
)
from app.util import module_tree
from app.util.rng import Generators, borrowed

_LARGEST = 1 << 22  # values of tensors that a call is tried on for real
_HOME = torch.device("cpu")


class MetaEvaluator:
    """Makes calls of a trace. `where` names the module that runs."""

    def __init__(
        self, apart: Callable[[], Mapping[str, Apart]], where: Callable[[], str]
    ) -> None:
        self._apart, self._where = apart, where
        self.root: nn.Module = nn.Module()

    def evaluate(self, kind: str, target: Any, args: Any, kwargs: Any) -> Any:
        """Evaluate a call. Raises what the call raises, and TraceError if only meta tensors do not support it."""
        args, kwargs = tree_map(_on_meta, (args, kwargs))
        try:
            with torch.no_grad(), _no_inference():
                return self._evaluate(kind, target, args, kwargs)
        except TraceError:
            raise
        except Exception as error:
            if isinstance(error, NotImplementedError) or _runs(
                kind, target, args, kwargs
            ):
                message = f"{self._where()} {DEPENDS} ({first_sentence(error)})"
                raise DataDependentError(message) from error
            raise

    def _evaluate(self, kind: str, target: Any, args: Any, kwargs: Any) -> Any:
        if kind == "call_module":
            return self._layer(target, args, kwargs)
        if target in FACTORIES:
            kwargs = {**kwargs, "device": "meta"}
        if kind == "call_method":
            return getattr(args[0], target)(*args[1:], **kwargs)
        if (
            kind == "call_function"
            and (output := meta_result(target, args, kwargs)) is not None
        ):
            return output
        output = target(*args, **kwargs)
        return (
            _HOME if target is getattr and isinstance(output, torch.device) else output
        )

    def _layer(self, path: str, args: Any, kwargs: Any) -> Any:
        module, apart = self.root.get_submodule(path), self._apart().get(path)
        try:
            with _plain_mode(module):
                if apart is not None:
                    with borrowed(Generators()):
                        return _tensors_of(
                            alone(module, apart.real, args, kwargs), apart
                        )
                output = meta_result(module, args, kwargs)
                return module(*args, **kwargs) if output is None else output
        except Exception as error:  # torch's words, and whose they are
            whose = (
                path if apart is not None else None
            )  # the next module around a node that fails can be one
            message = f"{not_taken(path, module, (args, kwargs))}: {error}"
            raise InputNotAcceptedError(message, whose) from error


def _tensors_of(output: Any, apart: Apart) -> Any:
    """Return the output tensors of an opaque node: all those of a record, which is kept."""
    apart.record = None
    if not is_record(output):
        return output
    leaves = list(map(without_values, tree_flatten(plain(output))[0]))
    apart.record = refilled(output, iter(leaves))
    tensors = tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
    if len(tensors) != len(apart.spec.outputs):
        count, kind = len(apart.spec.outputs), type(output).__name__
        raise TypeError(
            f"it returns a {kind} of {len(tensors)} tensors, where its node has outputs for {count}"
        )
    return tensors[0] if len(tensors) == 1 else tensors


def by_default(node: fx.Node, values: Mapping[fx.Node, Any]) -> torch.dtype | None:
    """Return the default dtype if a call's result has it for no other reason, so that it would differ elsewhere."""
    default, value = torch.get_default_dtype(), values[node]
    if (
        default is torch.float32
        or not isinstance(value, torch.Tensor)
        or value.dtype != default
    ):
        return None
    inputs = (values[input_node] for input_node in node.all_input_nodes)
    names_dtype = any(
        isinstance(leaf, torch.dtype)
        for leaf in tree_flatten((node.args, dict(node.kwargs)))[0]
    )
    of_another = any(
        isinstance(input_example, torch.Tensor) and input_example.is_floating_point()
        for input_example in inputs
    )
    return None if names_dtype or of_another or node.op == "call_module" else default


def _on_meta(value: Any) -> Any:
    value = plain_flag(value)
    return torch.device("meta") if isinstance(value, torch.device) else value


@contextlib.contextmanager
def _no_inference() -> Iterator[None]:
    """Leave inference mode: traced values need version counters."""
    if not torch.is_inference_mode_enabled():
        yield
        return
    with torch.inference_mode(False), torch.no_grad():
        yield


@contextlib.contextmanager
def _plain_mode(module: nn.Module) -> Iterator[None]:
    """Give torch layers a plain bool as `training`."""
    flagged = [
        (flagged_module, flag)
        for flagged_module in module_tree.modules(module)
        if type(flag := flagged_module.__dict__.get("training")) is Training
    ]
    for submodule, flag in flagged:
        submodule.__dict__["training"] = flag.on
    try:
        yield
    finally:
        for submodule, flag in flagged:
            submodule.__dict__["training"] = flag


def _runs(kind: str, target: Any, args: Any, kwargs: Any) -> bool:
    """Return whether a call that fails on meta tensors succeeds on real ones."""
    tensors = [
        leaf
        for leaf in tree_flatten((args, kwargs))[0]
        if isinstance(leaf, torch.Tensor)
    ]
    if (
        kind == "call_module"
        or not tensors
        or sum(tensor.numel() for tensor in tensors) > _LARGEST
    ):
        return False
    try:
        real, named = tree_map(_real, (args, kwargs))
        with torch.random.fork_rng(devices=[]), torch.no_grad(), _no_inference():
            torch.default_generator.manual_seed(SEED)
            getattr(real[0], target)(
                *real[1:], **named
            ) if kind == "call_method" else target(*real, **named)
    except Exception:  # it is the call that fails
        return False
    return True


def _real(value: Any) -> Any:
    if isinstance(value, fx.Node) or not isinstance(value, torch.device):
        return real_like(value)
    return _HOME


SEED = 20011


def alone(on_meta: nn.Module, real: nn.Module, args: Any, kwargs: Any) -> Any:
    """Run a module on meta tensors; if that fails, on real ones of the same shapes."""
    try:
        return on_meta(*args, **kwargs)
    except Exception:  # real tensors show the module's own error
        return run_alone(real, args, kwargs)


def run_alone(
    module: nn.Module, args: Any, kwargs: Any, results: dict[str, Any] | None = None
) -> Any:
    """Run a copy of a real module on random tensors of these shapes; return meta results. Raises what the module
    raises. `results` receives what each submodule returned at its first call, by path."""
    real, named = tree_map(_positive, tree_map(real_like, (args, kwargs)))
    outputs, failed = None, None
    mode = getattr(module, "training", False)  # frozen TorchScript has no mode
    # Some layers need several samples in training, and a tensor hook needs requires_grad.
    for training, recorded in ((mode, False), (mode, True), (False, False)):
        with borrowed(Generators()), torch.set_grad_enabled(recorded):
            torch.default_generator.manual_seed(SEED)
            try:
                copied = module_tree.copied(module).train(training)
                if results is not None:
                    _note_results(copied, results)
                outputs, failed = copied(*real, **named), None
                break
            except Exception as error:
                failed = failed or error
    if failed is not None:
        raise failed
    return tree_map(
        lambda leaf: (
            leaf.detach().to("meta") if isinstance(leaf, torch.Tensor) else leaf
        ),
        outputs,
    )


def _note_results(model: nn.Module, results: dict[str, Any]) -> None:
    """Register forward hooks that record the results of all submodules."""
    results.clear()

    def noting(path: str) -> Any:
        def note(_module: nn.Module, _args: Any, result: Any) -> None:
            results.setdefault(path, result)

        return note

    for path, module in module_tree.named_modules(model, remove_duplicate=False):
        module_tree.on_call(module, noting(path))


def real_like(value: Any) -> Any:
    """Return a real tensor like a meta one: standard normal, or zeros for integers."""
    if not isinstance(value, torch.Tensor):
        return value
    if not value.is_floating_point():
        return torch.zeros(value.shape, dtype=value.dtype)
    return torch.randn(value.shape, generator=torch.Generator().manual_seed(SEED)).to(
        value.dtype
    )


def _positive(value: Any) -> Any:
    """Take absolute values: loops until convergence mostly terminate from small positive inputs."""
    return (
        value.abs()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
        else value
    )


def schema_of(script: torch.jit.ScriptModule) -> list[Any]:
    """Return the arguments of the forward of TorchScript, as torch describes them."""
    forward: Any = script.forward
    return list(forward.schema.arguments)[1:]


def argument_names(module: nn.Module) -> list[str]:
    """Name the arguments of a module's forward."""
    if isinstance(module, torch.jit.ScriptModule):
        return [argument.name for argument in schema_of(module)]
    return signature_of(type(module).forward)[1:]


def port_name(spec: OpSpec, name: str) -> str:
    """Return the port for an argument of `forward`; with an underscore if the constructor has one of that name."""
    renamed = f"{name}_"
    return (
        renamed
        if renamed in spec.input_names and name not in spec.input_names
        else name
    )
