"""Handlers of `app.engine.requests.observe`: observe a model, or capture it with figures of one step."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace
from msgspec.structs import replace as with_values
from torch import Tensor, nn

from app.autograd import checks
from app.autograd.batch import TrainingBatch, preserve_gradients, run_backward
from app.autograd.capture import OwnLoss, tensors_of
from app.autograd.diagnostics import report as reports
from app.autograd.errors import CaptureError
from app.autograd.forward_modes import Special, until_cancelled
from app.autograd.gradient_norms import measure
from app.autograd.node_notes import notes_of_tape
from app.autograd.playback.playback import play_through
from app.autograd.playback.root_gradients import chosen_vectors
from app.autograd.playback.steps import GradStats
from app.autograd.tape import Tape
from app.engine.requests.observe import (
    CapturedModel,
    ModelCapture,
    ModelReport,
    ModelReported,
    Observe,
)
from app.engine.requests.playback import Steps
from app.engine.server import Context, handles
from app.engine.tasks.weights import fit_weights, state_of
from app.observe.figures import ModuleFigures
from app.observe.observation import Observation
from app.observe.observe import observe
from app.observe.own_losses import interface_with_losses
from app.sources import onnx_file, pt2_file
from app.sources.finding import shadowing
from app.sources.loading import LARGEST, PACKAGES, Loaded, load, weight_bytes
from app.sources.spec import ModelRaisedError, SourceError
from app.util import gc_pause, module_tree, rng
from app.util.formatting import bytes_text


@handles(Observe)
def observe_model(request: Observe, context: Context) -> Observation:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # discard what the model prints
    if request.folder:
        os.chdir(
            request.folder
        )  # relative paths in the model's code are relative to it
    return answer(request, context.progress)


def answer(
    request: Observe, tell: Callable[[str], None] = lambda _words: None
) -> Observation:
    """Make and observe a model in this process, or read its graph from a file. Raises SourceError."""
    if request.source.looked_at:
        tell(f"Reading {request.source}")
        reader = pt2_file if request.source.kind == "pt2" else onnx_file
        return reader.read(Path(request.folder, request.source.where))
    tell(f"Making {request.source}")
    with (
        gc_pause.put_off()
    ):  # packages of models import thousands of modules, which stay
        loaded = load_model(request)
    gc_pause.freeze_new_modules()
    tell(f"Running {request.source} once")
    observation = observe(
        loaded.model,
        loaded.args,
        loaded.named(request.train),
        train=request.train,
        name=type(loaded.model).__name__,
    )
    if observation.failed is not None and request.meta:
        return observe_with_values(request, observation, tell)
    if not request.train and observation.interface is not None:
        tell(f"Looking for a loss of {request.source}")
        with torch.device("meta") if request.meta else contextlib.nullcontext():
            shown = interface_with_losses(
                loaded.model,
                tuple(loaded.args),
                loaded.kwargs,
                loaded.targets,
                observation.interface,
            )
        observation = replace(observation, interface=shown)
    if loaded.lazy and observation.interface is not None:
        observation = replace(
            observation, interface=replace(observation.interface, lazy=True)
        )
    remarks = filter(None, (loaded.remark, _shadowing(request)))
    return replace(observation, remarks=(*observation.remarks, *remarks))


def load_model(request: Observe, meta: bool | None = None) -> Loaded:
    """Make the model of a request and its inputs, on the meta device if `meta`, by default as requested."""
    on_meta = request.meta if meta is None else meta
    return load(
        request.source,
        request.arguments,
        request.inputs,
        on_meta,
        request.folder,
        request.example,
    )


def _shadowing(request: Observe) -> str:
    """Report modules of the user's folder that were imported instead of an installed package, or shadowed by one."""
    folder = Path(request.folder or ".").resolve()
    if request.folder:
        from_here = [
            name
            for name, module in tuple(sys.modules.items())
            if "." not in name
            and (file := getattr(module, "__file__", None))
            and _is_in(file, folder)
        ]
        return shadowing(folder, from_here)
    name = PACKAGES.get(request.source.kind, "")
    if name and shadowing(folder, [name]):
        return f"{name} is the installed package; {folder / name} is not used."
    return ""


def _is_in(file: str, folder: Path) -> bool:
    """Return whether a module is a file of this folder, or a package in it."""
    path = Path(file).resolve()
    return path.parent == folder or (
        path.stem == "__init__" and path.parent.parent == folder
    )


def observe_with_values(
    request: Observe, without: Observation, tell: Callable[[str], None]
) -> Observation:
    """Observe again with weights where a model without values raised: control flow on values needs them."""
    with_weights = replace(request, meta=False)
    loaded = load_model(request, meta=True)
    if (size := weight_bytes(loaded.model)) > LARGEST:
        return _without_values(request, loaded, size, without)
    try:
        return answer(with_weights, tell)
    except SourceError:
        return without


def _without_values(
    request: Observe, loaded: Loaded, size: int, raised: Observation
) -> Observation:
    """Say what a model that is too large to be made with its weights raised for, or observe it in the precision that
    torch's operators of experts ask for on the meta device."""
    if "BF16" in raised.error:
        args, kwargs = (
            _in_bfloat16(loaded.args),
            _in_bfloat16(loaded.named(request.train)),
        )
        name = type(loaded.model).__name__
        observation = observe(
            loaded.model.to(torch.bfloat16),
            args,
            kwargs,
            train=request.train,
            name=name,
        )
        if observation.failed is None:
            remark = (
                "Drawn in bfloat16: torch multiplies the groups of experts in that precision "
                "alone where there are no"
            )
            return replace(
                observation, remarks=(*observation.remarks, f"{remark} values.")
            )
    remark = (
        f"It has {bytes_text(size)} of weights, so it ran without values, and what raised may need them. Arguments "
        "that make it smaller, such as fewer layers, have it run with values."
    )
    return replace(raised, remarks=(*raised.remarks, remark))


def _in_bfloat16(value: Any) -> Any:
    """Return inputs with their floating point tensors in bfloat16."""
    return torch.utils._pytree.tree_map_only(
        Tensor,
        lambda tensor: (
            tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor
        ),
        value,
    )


# --- Captures


@handles(ModelCapture)
def capture_model(request: ModelCapture, context: Context) -> CapturedModel:
    """Capture a call, and measure every module in it. Raises as `batch_of_model`."""
    context.progress(f"Making {request.model.source}")
    batch = batch_of_model(request)
    context.progress(f"Running {request.model.source}")
    outputs: dict[str, Any] = {}
    # Hooks would break a compiled graph into pieces.
    cancel = until_cancelled(context.cancelled, request.options)
    measured = _outputs_measured(
        batch.model, outputs if not request.options.compile else None
    )
    with measured, batch.hold(around=cancel) as graph:
        tape = graph.tape
        with preserve_gradients(batch.model):
            context.progress(f"Running backward of {request.model.source}")
            run_backward(graph)
            gradients = (
                {} if request.options.second_order else _gradient_norms(batch.model)
            )
    return CapturedModel(
        tape, request, tuple(_figures(batch.model, tape, gradients, outputs))
    )


@handles(ModelReport)
def report_on_model(request: ModelReport, context: Context) -> ModelReported:
    return report(request, context.progress)


def report(
    request: ModelReport, tell: Callable[[str], None] = lambda _words: None
) -> ModelReported:
    """Capture a model in this process; play, diagnose and check it as requested. Raises as `batch_of_model`."""
    chosen = request.batch.options
    tell(f"Making {request.batch.model.source}")
    tape, steps, stopped, lines, finding_count, remark = (
        None,
        None,
        "",
        list[str](),
        0,
        "",
    )
    if request.graph:
        shown = batch_of_model(request.batch)
        remark = shown.remark
        with shown.hold() as graph:
            tape = graph.tape
            lines += notes_of_tape(tape) if chosen.second_order else ()
            if request.play:
                played, stopped = play_through(graph)
                steps = Steps.from_records(played.records).packed
    if request.findings or request.checks:
        batch = batch_of_model(request.batch.diagnosed)
        remark = (
            remark or batch.remark
        )  # a file turns switches when it is first imported
        lines += filter(None, [chosen.left_out])
        if request.findings:
            report_lines, finding_count = reports.findings(batch)
            lines += report_lines
        for name, layer in request.checks.items():
            more, wrong = checks.check(name).of_batch(batch, layer)
            lines, finding_count = [*lines, *more], finding_count + wrong
    return ModelReported(tape, steps, stopped, tuple(lines), finding_count, remark)


def batch_of_model(request: ModelCapture) -> TrainingBatch:
    """Build the model and its example inputs again. Raises SourceError, and CaptureError for one that is too large."""
    observed, options = request.model, request.options
    if observed.folder:
        os.chdir(
            observed.folder
        )  # relative paths in the model's code are relative to it
    with rng.borrowed(request.seed):
        loaded = _loaded(observed)
    remarks = [loaded.remark]
    if request.weights:
        remarks += fit_weights(
            loaded.model,
            state_of(request.weights),
            request.weights,
            str(observed.source),
        )
    starts = chosen_vectors(
        replace(options, loss=False, vector="ones") if options.loss else options
    )
    return TrainingBatch(
        loaded.model,
        loaded.args,
        OwnLoss() if options.loss else None,
        None,
        None,
        request.train,
        request.seed,
        special=Special.from_options(options),
        seeds=None if options.second_order else starts,
        kwargs=loaded.named(request.train),
        own_lines=True,
        remark=" ".join(filter(None, remarks)),
    )


def _loaded(observed: Observe) -> Loaded:
    if not observed.source.own_code or observed.meta:
        size = 0
        with contextlib.suppress(SourceError):  # some constructors need values
            meta_model = load_model(observed, meta=True).model
            size = weight_bytes(meta_model)
        if size > LARGEST:
            raise CaptureError(
                f"{observed.source} has {bytes_text(size)} of weights; a capture holds them, their gradients and "
                f"activations in memory, and takes {bytes_text(LARGEST)} of weights at most. Pass arguments that make "
                "it smaller, such as fewer layers"
            )
    loaded = load_model(observed, meta=False)
    if loaded.refusal:
        raise ModelRaisedError(f"{observed.source}: {loaded.refusal}. {loaded.remark}")
    if _kept_by_module(
        loaded.model, observed
    ):  # another lane may be amid a forward pass of it
        loaded.model = module_tree.copied(loaded.model)
    return loaded


def _kept_by_module(model: nn.Module, observed: Observe) -> bool:
    """Return whether a model is an object of the module it comes from, which every request would share."""
    source = observed.source
    file = (
        str(Path(observed.folder, source.where).resolve())
        if source.kind == "file"
        else None
    )
    for name, module in tuple(sys.modules.items()):
        if name == source.where or (
            file is not None and getattr(module, "__file__", None) == file
        ):
            attribute: Any = module
            for segment in source.name.split("."):
                attribute = getattr(attribute, segment, None)
            if attribute is model:
                return True
    return False


# --- Figures


@contextlib.contextmanager
def _outputs_measured(
    model: nn.Module, stats_by_path: dict[str, list[GradStats | None]] | None
) -> Iterator[None]:
    """Measure the output of every module during the pass; the last call of each counts."""
    hooks: list[Any] = []

    def hook(path: str) -> Callable[..., None]:
        def note(_module: nn.Module, _args: Any, output: Any) -> None:
            if torch._C._current_graph_task_id() != -1:
                return  # a checkpoint that recomputes
            with torch.no_grad(), torch._C.DisableTorchFunction():
                tensors = [
                    tensor
                    for tensor in tensors_of(output)
                    if tensor.is_floating_point() and tensor.device.type != "meta"
                ]
                assert stats_by_path is not None
                stats_by_path[path] = measure(tensors)

        return note

    try:
        for path, module in (
            module_tree.named_modules(model) if stats_by_path is not None else ()
        ):
            hooks.append(module_tree.on_call(module, hook(path)))
        yield
    finally:
        for handle in hooks:
            handle.remove()


def _gradient_norms(model: nn.Module) -> dict[int, float]:
    """Return the norm of each parameter's `.grad`, by the parameter's id."""
    parameters = [
        parameter
        for parameter in module_tree.parameters(model)
        if parameter.grad is not None
    ]
    stats = measure([parameter.grad for parameter in parameters])
    return {
        id(parameter): stat.norm
        for parameter, stat in zip(parameters, stats, strict=True)
        if stat is not None
    }


def _figures(
    model: nn.Module,
    tape: Tape,
    gradients: dict[int, float],
    outputs: dict[str, list[GradStats | None]],
) -> Iterator[ModuleFigures]:
    saved = _saved_bytes(tape)
    for path, module in module_tree.named_modules(model):
        parameters = list(module_tree.parameters(module))
        norms = [
            gradients[id(parameter)]
            for parameter in parameters
            if id(parameter) in gradients
        ]
        figures = ModuleFigures(
            path,
            sum(map(Tensor.numel, parameters)),
            sum(norm**2 for norm in norms) ** 0.5 if norms else None,
            saved.get(path, 0),
        )
        yield _with_output(
            figures, [stat for stat in outputs.get(path, ()) if stat is not None]
        )


def _with_output(figures: ModuleFigures, stats: list[GradStats]) -> ModuleFigures:
    counts = [torch.Size(stat.shape).numel() for stat in stats]
    total = sum(counts)
    if not total:
        return figures
    return with_values(
        figures,
        shape=stats[0].shape,
        absmax=max(stat.absmax for stat in stats),
        mean=sum(stat.mean * count for stat, count in zip(stats, counts, strict=True))
        / total,
        zeros=sum(stat.zeros * count for stat, count in zip(stats, counts, strict=True))
        / total,
        nonfinite=sum(stat.nonfinite for stat in stats),
    )


def _saved_bytes(tape: Tape) -> dict[str, int]:
    """Return the bytes of activations that the nodes of each module and of those in it keep, each storage once."""
    storages_by_path: dict[str, set[int]] = {}
    for node in tape.nodes:
        storages = {saved.storage for saved in node.saved if saved.kind == "activation"}
        for path in _above(node.layer):
            storages_by_path.setdefault(path, set()).update(storages)
    return {
        path: sum(tape.storages[storage].bytes for storage in storages)
        for path, storages in storages_by_path.items()
    }


def _above(path: str) -> Iterable[str]:
    """
    >>> list(_above("encoder.0.fc"))
    ['', 'encoder', 'encoder.0', 'encoder.0.fc']
    """
    parts = path.split(".") if path else []
    return (".".join(parts[:count]) for count in range(len(parts) + 1))
