"""Observe one forward pass of any model, also one that raises: `observe(model, args, kwargs)`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import Any

import torch
from msgspec.structs import replace
from msgspec.structs import replace as set_fields
from torch import Tensor, nn

from app.observe import tensors
from app.observe.observation import Observation
from app.observe.recorder import Recorder
from app.source.interface import Argument, Interface, Returned, is_place, is_way
from app.util import module_tree, rng, user_frames
from app.util.module_tree import temporary_mode

# --- The arguments of forward and the tensors that it returned, read off one call

MOST = 200  # tensors that are listed, such as those of a cache
CHANNELS = (1, 3)  # of a picture: a list of such tensors has one a sample


@contextmanager
def normalised_counts(model: nn.Module) -> Iterator[dict[str, int]]:
    """Yield the number of values of a channel that each batch norm is called with, by the path of the layer."""
    counts: dict[str, int] = {}

    def note(path: str, batch: Any) -> None:
        if isinstance(batch, Tensor) and batch.ndim > 1 and batch.shape[1]:
            counts[path] = batch.numel() // batch.shape[1]

    hooks = [
        module.register_forward_pre_hook(
            lambda _, args, path=path: note(path, *args[:1])
        )
        for path, module in module_tree.named_modules(model)
        if isinstance(module, nn.modules.batchnorm._BatchNorm)
    ]
    try:
        yield counts
    finally:
        for hook in hooks:
            hook.remove()


def interface_of(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    output: Any,
    counts: Mapping[str, int],
) -> Interface:
    """Describe `output = model(*args, **kwargs)`, in which batch norms had as many values a channel as `counts`
    say."""
    kind = type(model)
    takes = [*_arguments(model, args, kwargs)]
    named = [*module_tree.named_parameters(model)]
    returns: list[Returned] = []
    for returned in _returned(output, ""):
        if len(returns) == MOST:
            break
        returns.append(returned)
    return Interface(
        f"{kind.__module__}.{kind.__qualname__}",
        _distinct(takes),
        tuple(returns),
        tuple(dict.fromkeys(name.rpartition(".")[0] or name for name, _ in named)),
        sum(parameter.numel() for _, parameter in named),
        quantised=module_tree.quantised(model),
        one_value_norm=_one_value_norm(takes, counts),
    )


def _one_value_norm(takes: list[Argument], counts: Mapping[str, int]) -> str:
    """Return the path of the first batch norm with as many values a channel as there are samples, "" if none is."""
    batch = next((argument.shape[0] for argument in takes if argument.shape), 0)
    return next((path for path, count in counts.items() if count == batch), "")


def _arguments(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[Argument]:
    try:
        parameters = [*inspect.signature(model.forward).parameters.values()]
    except (TypeError, ValueError):
        parameters = []
    left, named = [*args], dict(kwargs)
    by_sample = any(_is_by_sample(value) for value in (*args, *kwargs.values()))
    for parameter in parameters:
        if parameter.kind == parameter.VAR_POSITIONAL:
            for number, value in enumerate(left):
                yield from _argument(
                    f"{parameter.name}{number}", value, True, True, by_sample
                )
            left = []
        elif parameter.kind == parameter.VAR_KEYWORD:
            for name in [*named]:
                yield from _argument(name, named.pop(name), True, False, by_sample)
        else:
            by_place = parameter.kind == parameter.POSITIONAL_ONLY
            passed = (
                left.pop(0)
                if left and parameter.kind != parameter.KEYWORD_ONLY
                else named.pop(parameter.name, None)
            )
            yield from _argument(
                parameter.name,
                passed,
                parameter.default is parameter.empty,
                by_place,
                by_sample,
            )
    for number, value in enumerate(left):  # of a forward without a signature
        yield from _argument(f"input{number}", value, True, True, by_sample)


def _argument(
    name: str, value: Any, needed: bool, by_place: bool, by_sample: bool
) -> Iterator[Argument]:
    """Yield an argument, or the tensors in it if it is made of nothing else; with `by_sample` lists have a part for
    each sample."""
    if isinstance(value, Tensor) or value is None:
        yield _tensor(name, value, needed, by_place)
        return
    tensors = [*_within(value, "", by_sample)]
    if not tensors or by_place or any(tensor is None for _, tensor, _ in tensors):
        yield Argument(
            name, needed=needed, other=type(value).__name__, by_place=by_place
        )
        return
    for way, tensor, samples in tensors:
        assert tensor is not None
        key = way.rpartition('["')[2].removesuffix('"]') if way.endswith('"]') else ""
        argument_name = (
            key
            if key.isidentifier()
            else name
            if way == "[*]"
            else f"{name}{''.join(filter(str.isalnum, way))}"
        )
        shape = (samples, *tensor.shape) if samples else tuple(tensor.shape)
        dtype = str(tensor.dtype).removeprefix("torch.")
        yield Argument(argument_name, shape, dtype, needed, of=name, way=way)


def _tensor(name: str, value: Tensor | None, needed: bool, by_place: bool) -> Argument:
    if value is None:
        return Argument(name, needed=needed, by_place=by_place)
    return Argument(
        name,
        tuple(value.shape),
        str(value.dtype).removeprefix("torch."),
        needed,
        "",
        by_place,
    )


def _within(
    value: Any, way: str, by_sample: bool
) -> Iterator[tuple[str, Tensor | None, int]]:
    """Yield the tensors of lists, tuples and dictionaries with the way to each, and for one of each sample how many
    there are; None for what is no tensor."""
    if isinstance(value, Tensor):
        yield way, value, 0
    elif (
        by_sample
        and not way
        and isinstance(value, list | tuple)
        and value
        and _same(value)
    ):
        for inner, tensor, _ in _within(value[0], "[*]", by_sample):
            yield inner, tensor, len(value)
    elif type(value) in (list, tuple):
        for number, element in enumerate(value):
            yield from _within(
                element,
                f"{way}[{number}]" if type(value) is list else f"{way}({number})",
                by_sample,
            )
    elif type(value) is dict and all(
        isinstance(key, str) and is_place(f'["{key}"]') for key in value
    ):
        for key, element in value.items():
            yield from _within(element, f'{way}["{key}"]', by_sample)
    else:
        yield way, None, 0


def _same(parts: Any) -> bool:
    """Return whether these are dictionaries with the same keys, or tensors."""
    first = parts[0]
    if isinstance(first, dict):
        return all(
            isinstance(element, dict) and element.keys() == first.keys()
            for element in parts
        )
    return all(isinstance(element, Tensor) for element in parts)


def _is_by_sample(value: Any) -> bool:
    """Return whether a list has a part for each sample: a dictionary, or a picture."""
    if not isinstance(value, list | tuple) or not value:
        return False
    if isinstance(value[0], dict):
        return _same(value)
    return all(
        isinstance(element, Tensor)
        and element.ndim == 3
        and element.shape[0] in CHANNELS
        for element in value
    )


def _distinct(takes: list[Argument]) -> tuple[Argument, ...]:
    """Name tensors within arguments by their argument, too, where two have the same name."""
    names = [argument.name for argument in takes]
    return tuple(
        replace(argument, name=f"{argument.of}_{argument.name}")
        if argument.way and names.count(argument.name) > 1
        else argument
        for argument in takes
    )


def _returned(value: Any, way: str) -> Iterator[Returned]:
    """Yield the tensors of a result, and at its top the fields of a record that are None this time."""
    if isinstance(value, Tensor):
        if is_way(way):
            detached = torch.is_grad_enabled() and not value.requires_grad
            yield Returned(
                way,
                tuple(value.shape),
                str(value.dtype).removeprefix("torch."),
                detached,
            )
    elif names := _attributes(value):
        for name in names:
            child = getattr(value, name, None)
            if child is None and not way:
                yield Returned(f".{name}")
            yield from _returned(child, f"{way}.{name}")
    elif isinstance(value, Mapping):
        for key, child in value.items():
            if isinstance(key, str):
                if child is None and not way and is_way(f'["{key}"]'):
                    yield Returned(f'["{key}"]')
                yield from _returned(child, f'{way}["{key}"]')
            elif isinstance(key, int) and key >= 0:
                yield from _returned(child, f"{way}[{key}]")
    elif isinstance(value, list | tuple):
        for number, child in enumerate(value):
            yield from _returned(child, f"{way}[{number}]")


def _attributes(value: Any) -> tuple[str, ...]:
    """Return the attributes of a record: a dataclass, a named tuple, a class of attrs, or a namespace."""
    if isinstance(value, type):
        return ()
    if is_dataclass(value):
        return tuple(field.name for field in fields(value))
    if isinstance(value, SimpleNamespace):
        return tuple(vars(value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return tuple(value._fields)
    return tuple(
        attribute.name for attribute in getattr(type(value), "__attrs_attrs__", ())
    )


# From the most that can be seen to the least; a mode of torch that a model does not run under is left out.
WAYS = ((True, True), (False, True), (False, False))
LEFT_OUT = {
    (
        False,
        True,
    ): "The kernels are not shown: the model does not run under torch's dispatch mode.",
    (
        False,
        False,
    ): "Only modules are shown: the model does not run under torch's function mode.",
}


def observe(
    model: nn.Module,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    train: bool = False,
    seed: int = 0,
    name: str = "",
) -> Observation:
    """Run `model(*args, **kwargs)` once and return the recorded calls, up to the exception if it raised one.

    Weights, buffers, modes and torch's generators are afterwards as before. A model that raises is run again with less
    observed, to distinguish its exception from one caused by observing it.
    """
    named_args = dict(kwargs or {})
    first: Observation | None = None
    for kernels, functions in WAYS:
        recorder = Recorder(model)
        outcome = _run(
            recorder, model, args, named_args, train, seed, (kernels, functions)
        )
        if isinstance(outcome, Interface):
            remark = LEFT_OUT.get((kernels, functions))
            remarks = tuple(
                filter(None, (remark, module_tree.unregistered_sentence(model)))
            )
            return _observation(recorder, model, None, name, train, remarks, outcome)
        first = first or _observation(recorder, model, outcome, name, train, ())
        recorder.release()
        outcome.__traceback__ = (
            None  # its frames hold the activations of the whole pass
        )
    assert first is not None
    return first


def _run(
    recorder: Recorder,
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    train: bool,
    seed: int,
    way: tuple[bool, bool],
) -> Interface | BaseException:
    for label, value in (
        *zip(argument_names(model, len(args)), args, strict=True),
        *kwargs.items(),
    ):
        for name, contents in _parts(value, label):
            recorder.boundary("input", name, contents)
    with (
        rng.borrowed(seed),
        temporary_mode(model, train),
        torch.compiler.set_stance("force_eager"),
    ):
        try:
            with normalised_counts(model) as counts, recorder.observing(*way):
                output = model(*args, **kwargs)
        except (Exception, SystemExit) as error:  # the model's own
            return error
        for name, contents in _parts(output, ""):
            recorder.boundary(
                "output", name if name[:1].isalpha() else f"output{name}", contents
            )
    interface = interface_of(model, args, kwargs, output, counts)
    if train and interface.own_losses and interface.chief is None:
        return set_fields(
            interface,
            losses_in_training=not _has_losses(model, args, kwargs, interface, seed),
        )
    return interface


def interface_in_training(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], seed: int = 0
) -> Interface | None:
    """Describe a call in train mode if the model returns losses of its own there; None if it returns none, or
    raises."""
    interface = call_interface(model, args, kwargs, True, seed)
    if interface is None or not any(
        returned.dtype for returned in interface.own_losses
    ):
        return None
    return set_fields(
        interface,
        losses_in_training=not _has_losses(model, args, kwargs, interface, seed),
    )


def _has_losses(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    interface: Interface,
    seed: int,
) -> bool:
    """Return whether a model returns in eval mode the losses that it returned in train mode."""
    eval_interface = call_interface(model, args, kwargs, False, seed)
    return eval_interface is not None and {
        (returned.way, returned.shape, returned.dtype)
        for returned in interface.own_losses
    } <= {
        (returned.way, returned.shape, returned.dtype)
        for returned in eval_interface.returns
    }


def call_interface(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    train: bool,
    seed: int = 0,
) -> Interface | None:
    """Describe a call without observing it; None if it raises."""
    try:
        with (
            rng.borrowed(seed),
            temporary_mode(model, train),
            torch.compiler.set_stance("force_eager"),
            normalised_counts(model) as counts,
        ):
            output = model(*args, **kwargs)
    except (Exception, SystemExit):  # the model's own
        return None
    return interface_of(model, args, kwargs, output, counts)


def _observation(
    recorder: Recorder,
    model: nn.Module,
    error: BaseException | None,
    name: str,
    train: bool,
    remarks: tuple[str, ...],
    interface: Interface | None = None,
) -> Observation:
    calls = list(recorder.calls())
    failed = _failed(recorder, error)
    if failed is not None and error is not None:
        file, line = user_frames.location_of_error(error.__traceback__)
        if calls[failed].kind == "module" and line:
            calls[failed] = replace(calls[failed], file=file, line=line)
    return Observation(
        name or type(model).__name__,
        tuple(calls),
        tuple(recorder.flows),
        {
            path: f"{type(module).__module__}.{type(module).__qualname__}"
            for path, module in module_tree.named_modules(model)
        },
        failed,
        f"{type(error).__name__}: {error}" if error is not None else "",
        remarks,
        train,
        interface,
    )


def _failed(recorder: Recorder, error: BaseException | None) -> int | None:
    """Return the innermost call that an exception left, or that its cause left inside that one."""
    if error is None:
        return None
    visited: list[BaseException] = []
    exception: BaseException | None = error
    while exception is not None and exception not in visited:
        visited.append(exception)
        exception = exception.__cause__ or exception.__context__
    for cause in reversed(visited):
        for noted, call in recorder.errors:
            if noted is cause:
                return call
    return None


def argument_names(model: nn.Module, count: int) -> list[str]:
    """Name the first positional arguments of a model's forward; those of `*args` are numbered."""
    try:
        parameters = [*inspect.signature(model.forward).parameters.values()]
    except (TypeError, ValueError):
        parameters = []
    plain = [
        parameter.name
        for parameter in parameters
        if parameter.kind
        in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return [plain[at] if at < len(plain) else f"input{at}" for at in range(count)]


def _parts(value: Any, label: str) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield the tensors of a value under their names: `logits`, `hidden_states.0`; those of an object under one."""
    parts: Iterable[tuple[Any, Any]]
    if isinstance(value, Mapping):
        parts = value.items()
    elif is_dataclass(value):
        parts = (
            (field.name, getattr(value, field.name, None)) for field in fields(value)
        )
    elif isinstance(value, list | tuple):
        parts = zip(
            getattr(value, "_fields", None) or range(len(value)), value, strict=True
        )
    else:
        if contents := tensors.tensors_in(value, objects=True):
            yield label, contents
        return
    for key, child in parts:
        yield from _parts(child, f"{label}.{key}".removeprefix("."))
