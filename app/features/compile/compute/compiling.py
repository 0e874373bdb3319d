"""Measure a model under torch.compile: its graph breaks, recompiles, and the time of a call.

Graph breaks and recompiles need no C++ compiler: dynamo alone captures the graphs, which run eagerly. The compiled time
is that of the Inductor backend, which needs one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from msgspec import Struct
from msgspec.structs import replace
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from app.autograd.capture import tensors_of
from app.engine.requests.observe import Observe
from app.engine.tasks.observe import load_model
from app.features.compile.compute.compiler_log import (
    CompilerLog,
    Location,
    LoggedBreak,
    LoggedRecompile,
)
from app.features.compile.compute.model_lines import ModelLines
from app.features.compile.cures import recompile_cure
from app.features.compile.values import Break, Compile, Compiled, Recompile
from app.preflight import random_batch
from app.source import layer_files, raised
from app.source.compiled import make_module
from app.source.generated import Source
from app.sources.examples import called_with, dtype_of, example
from app.sources.loading import Loaded, trial_copy
from app.sources.spec import InputSpec, ModelRaisedError, SourceError
from app.util import module_tree, rng, user_frames
from app.util.formatting import shape_text
from tapedeck import devices

LEAST_TIME, MOST_CALLS = 0.5, 100  # seconds, and calls, of a time that is measured
WARM_UP = 3  # calls before
Tell = Callable[[str], None]


class Call(Struct, frozen=True):
    """The arguments of a call of a model."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Call:
        """Return the call with each tensor changed."""
        return Call(*tree_map_only(Tensor, change, (self.args, self.kwargs)))

    @property
    def text(self) -> str:
        tensors = tensors_of((self.args, self.kwargs))
        return ", ".join(shape_text(tuple(tensor.shape)) for tensor in tensors)


def compiled(request: Compile, tell: Tell = lambda _words: None) -> Compiled:
    """Return the graph breaks, recompiles and times of a model. Raises SourceError, and ModelRaisedError for what the
    model raises."""
    tell("Making the model")
    loaded = _load(request)
    model = loaded.model
    module_tree.set_mode(model, request.train)
    name = request.model.source if isinstance(request.model, Observe) else "the network"
    trial = trial_copy(model)  # so that the first compiled call is its first
    first, others, also, remarks = _calls(replace(loaded, model=trial), request)
    run = partial(_run, train=request.train)
    tell("Running it without the compiler")
    lines = ModelLines(_paths(trial))
    try:
        lines.follow(partial(run, trial, first))
    except (Exception, SystemExit) as error:  # whatever a model raises
        raise ModelRaisedError(f"{name}: {raised.sentence(error)}") from error
    tell("Looking for graph breaks")
    log = CompilerLog(_paths(model))
    graphs = _Graphs()
    with _fresh_compiler(), log.listening():
        compiled_model = torch.compile(model, backend=graphs)
        try:
            run(compiled_model, first)
            count = graphs.count
            run(compiled_model, first)
            repeated = len(log.recompiles)
            for number, call in enumerate(others):
                before = len(log.recompiles)
                run(compiled_model, call)
                if not number:
                    log.recompiles[before:] = [
                        entry for entry in log.recompiles[before:] if not entry.of_size
                    ]
            for call in also:
                run(compiled_model, call)
        except (Exception, SystemExit) as error:  # of the compiler too
            raise ModelRaisedError(
                f"{name} raised when it was compiled, and not before: {raised.sentence(error)}"
            ) from error
    tell("Timing it without the compiler")
    device = _device(model)
    eager_seconds = _seconds(partial(run, model, first), device)
    tell("Compiling it with Inductor")
    compiled_seconds, why, code = _inductor_seconds(model, partial(run, call=first))
    remarks += [why] if why else []
    if repeated and compiled_seconds is not None:
        remarks.append(
            "It is compiled again at calls with the same inputs; the compiled time contains that."
        )
    return Compiled(
        count,
        tuple(_breaks(log.breaks, lines, model)),
        tuple(_recompiles(log.recompiles, lines)),
        eager_seconds,
        compiled_seconds,
        tuple(dict.fromkeys(call.text for call in (first, *others, *also))),
        tuple(filter(None, [loaded.remark, *remarks])),
        code,
    )


def _load(request: Compile) -> Loaded:
    model = request.model
    if isinstance(model, Source):
        with rng.borrowed(request.seed):
            module = make_module(model)
        return Loaded(module, random_batch.inputs(model, request.batch, request.seed))
    if model.source.looked_at:
        raise SourceError(
            f"{model.source} is shown as a graph and not run; pass --trust to run a .pt2"
        )
    if model.folder:
        os.chdir(model.folder)  # relative paths in the model's code are relative to it
    with rng.borrowed(request.seed):
        loaded = load_model(model, meta=False)
    if loaded.refusal:
        raise ModelRaisedError(f"{model.source}: {loaded.refusal} {loaded.remark}")
    return loaded


def _paths(model: nn.Module) -> dict[int, str]:
    """Return the paths of a model's modules by identity."""
    return {id(module): path for path, module in module_tree.named_modules(model)}


# --- Calls


def _calls(
    loaded: Loaded, request: Compile
) -> tuple[Call, list[Call], list[Call], list[str]]:
    """Return the first call, those of two other batch sizes, those of `also`, each twice, and remarks."""
    first = Call(loaded.args, loaded.named(request.train))
    tensors = [
        tensor for tensor in tensors_of((first.args, first.kwargs)) if tensor.dim()
    ]
    others, remarks = [], []
    run = partial(_run, loaded.model, train=request.train)
    if tensors:
        size = tensors[0].shape[0]
        # torch compiles a batch of one for itself.
        if size == 1 and _runs(run, doubled := _larger(first, 1, 1)):
            first, size = doubled, 2
        others = [_larger(first, size, more) for more in (1, 2)]
        if not all(_runs(run, call) for call in others):
            others = []
            remarks.append("It takes one batch size alone, so no other was tried.")
    floats = dtype_of(loaded.model)
    also = [_described(specs, floats) for specs in request.also]
    return first, others, [call for call in also for _ in range(2)], remarks


def _described(specs: Sequence[InputSpec], floats: str) -> Call:
    return Call(*called_with(specs, [example(spec, floats) for spec in specs]))


def _larger(call: Call, size: int, more: int) -> Call:
    """Return a call with more samples than the `size` that it has."""

    def grown(tensor: Tensor) -> Tensor:
        if not tensor.dim() or tensor.shape[0] != size:
            return tensor
        return torch.cat([tensor, *[tensor[:1]] * more])

    return call.mapped(grown)


def _run(model: Callable[..., Any], call: Call, train: bool) -> None:
    """Call a model; in train mode, with backward of the sum of its outputs."""
    with nullcontext() if train else torch.no_grad():
        output = model(*call.args, **call.kwargs)
        if not train:
            return
        sums = [
            tensor.sum()
            for tensor in tensors_of(output)
            if tensor.requires_grad and tensor.is_floating_point()
        ]
    if sums:
        torch.stack([value.float() for value in sums]).sum().backward()
    if isinstance(model, nn.Module):
        for parameter in module_tree.parameters(model):
            parameter.grad = None


def _runs(run: Callable[[Call], None], call: Call) -> bool:
    try:
        run(call)
    except (Exception, SystemExit):  # whatever a model raises
        return False
    return True


# --- The compiler


class _Graphs:
    """A backend that counts graphs, and runs them as they are."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(
        self, graph: torch.fx.GraphModule, _inputs: Sequence[Any]
    ) -> Callable[..., Any]:
        self.count += 1
        return graph.forward


@contextmanager
def _fresh_compiler() -> Iterator[None]:
    """Reset dynamo before and afterwards: its cache of compiled code would hide breaks."""
    torch._dynamo.reset()
    try:
        yield
    finally:
        torch._dynamo.reset()


def _inductor_seconds(
    model: nn.Module, run: Callable[[Any], None]
) -> tuple[float | None, str, tuple[str, ...]]:
    """Return the time of a compiled call, or why there is none, and the code that was generated."""
    import torch._inductor.config as inductor

    log = CompilerLog({})
    # Compiling in this process leaves no other processes behind.
    with _fresh_compiler(), inductor.patch(compile_threads=1), log.listening():
        try:
            seconds = _seconds(partial(run, torch.compile(model)), _device(model))
            return seconds, "", tuple(log.code)
        except (Exception, SystemExit) as error:  # whatever a compiler raises
            text = raised.sentence(error).partition("\n")[0]
            if "compiler" in str(error) and "Invalid" in f"{type(error)}{error}":
                why = (
                    "There is no working C++ compiler here, which Inductor needs, so the compiled time was not "
                    "measured."
                )
            else:
                why = f"Inductor could not compile it: {text}."
            return None, why, ()


def _device(model: nn.Module) -> str:
    """Return the device of a model's first parameter, the CPU for one without any."""
    parameter = next(module_tree.parameters(model), None)
    return "cpu" if parameter is None else str(parameter.device)


def _seconds(call: Callable[[], None], device: str) -> float:
    """Return the median time of a call on a device, after some that are not counted."""
    for _ in range(WARM_UP):
        call()
    began = perf_counter()
    times: list[float] = []
    while len(times) < MOST_CALLS and (
        not times or perf_counter() - began < LEAST_TIME
    ):
        start = perf_counter()
        call()
        devices.synchronize(device)
        times.append(perf_counter() - start)
    return median(times)


# --- Graph breaks and recompiles with their lines


def _breaks(
    logged: Sequence[LoggedBreak], lines: ModelLines, model: nn.Module
) -> Iterator[Break]:
    """Yield each break once for every module in which its line runs."""
    met = set()
    for entry in logged:
        for location, path in _locations(entry, lines, model):
            if (location, path, entry.kind) not in met:
                met.add((location, path, entry.kind))
                yield Break(path, _line(location), entry.reason, entry.cure)


def _locations(
    entry: LoggedBreak, lines: ModelLines, model: nn.Module
) -> Iterator[tuple[Location, str]]:
    """Yield the lines of a break, each with the module that it is in."""
    if "RNN" in entry.kind:  # dynamo does not say which, nor where it is called
        for path, module in module_tree.named_modules(model):
            location = lines.calling(path)
            if isinstance(module, nn.RNNBase) and location is not None:
                yield location, path
        return
    location = lines.innermost(entry.frames)
    if location is not None:
        for path in lines.runs[location]:
            yield location, path
        return
    outside = lines.calling(entry.module) or entry.frames[-1]
    yield outside, entry.module


def _recompiles(
    logged: Sequence[LoggedRecompile], lines: ModelLines
) -> Iterator[Recompile]:
    for entry in logged:
        guard = entry.guard
        location = (
            _whole(guard.locations[-1], entry.location)
            if guard.locations
            else entry.location
        )
        paths = lines.runs.get(location, [])
        if guard.children:
            path = ".".join(filter(None, (entry.module, *guard.children)))
        else:
            path = paths[0] if len(paths) == 1 else entry.module
        yield Recompile(
            path,
            f"{guard.text} ({_line(location)})",
            guard.was,
            guard.now,
            recompile_cure(guard.text),
        )


def _whole(location: Location, code: Location) -> Location:
    """Return a location whose file the compiler has cut, with the file of the code that it is in."""
    file, line = location
    return (code[0], line) if code[0].endswith(file.lstrip(".")) else location


def _line(location: Location) -> str:
    """Return file:line, relative to the current folder where the file is in it."""
    file, line = location
    path = Path(file)
    if file.startswith(user_frames.GENERATED):
        shown = "model.py"
    elif file.startswith("<"):
        shown = layer_files.display_name(file)
    elif path.is_relative_to(Path.cwd()):
        shown = str(path.relative_to(Path.cwd()))
    else:
        shown = file
    return f"{shown}:{line}"
