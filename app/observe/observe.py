"""Observe one forward pass of any model, also one that raises: `observe(model, args, kwargs)`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from msgspec.structs import replace
from msgspec.structs import replace as set_fields
from torch import Tensor, nn

from app.observe import tensors
from app.observe.interface import interface_of, normalised_counts
from app.observe.observation import Observation
from app.observe.recorder import Recorder
from app.source.interface import Interface
from app.util import module_tree, rng, user_frames
from app.util.module_tree import temporary_mode

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
