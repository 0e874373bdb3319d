"""`tapedeck autograd` for a project: batch options and findings."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from app.autograd import checks
from app.autograd.capture_options import VECTORS, CaptureOptions
from app.autograd.diagnostics import report
from app.autograd.errors import CaptureError
from app.autograd.node_notes import notes_of_tape
from app.autograd.playback.playback import play_through
from app.cli import console, nets
from app.cli.autograd import graph_output
from app.engine.requests.capture import (
    CaptureRequest,
    InitialWeights,
    WeightsFile,
    node_labels,
)
from app.engine.tasks.capture import batch_of
from app.preflight import preflight
from app.project import custom_layers
from app.project import file as project_file
from app.runs import newest, store

if TYPE_CHECKING:
    from app.autograd.batch import TrainingBatch
    from app.engine.requests.capture import WeightsChoice
    from app.source.generated import Source


def refuse_options(options: argparse.Namespace) -> None:
    """Reject these options for a Python file."""

    flags = [
        f"--{name.replace('_', '-')}"
        for name in (
            "random",
            "outputs",
            "vector",
            "amp",
            "checkpoint",
            "second_order",
            "start_weights",
            "on",
        )
        if getattr(options, name)
    ]
    if flags:
        raise console.CommandError(
            f"{', '.join(flags)}: for projects and models only; a file's code decides how it runs"
        )


def capture_options(options: argparse.Namespace) -> CaptureOptions:
    """Parse the options. Raises CommandError for invalid combinations."""
    kind, _, index = (options.vector or "ones").partition(":")
    if kind not in VECTORS or (index and (kind != "one-hot" or not index.isdecimal())):
        raise console.CommandError(
            f"--vector {options.vector}: it can be {', '.join(VECTORS)}, or one-hot:INDEX"
        )
    numbers = [] if options.outputs in (None, "all") else options.outputs.split(",")
    if not all(number.isdecimal() and int(number) for number in numbers):
        raise console.CommandError(
            f"--outputs {options.outputs}: numbers starting at 1, such as 1,2, or all"
        )
    loss = options.outputs is None and options.vector is None
    if options.second_order and not loss:
        raise console.CommandError(
            "--second-order uses the gradient of the loss: omit --outputs and --vector"
        )
    return CaptureOptions(
        data="random" if options.random else "batch",
        batch=options.batch or 0,
        loss=loss,
        outputs=tuple(int(number) - 1 for number in numbers),
        vector=kind,
        index=int(index or 0),
        amp=options.amp or "",
        checkpoint=tuple(options.checkpoint),
        second_order=options.second_order,
    )


def mode_line(source: object, train: bool) -> str:
    """Say in which mode a net is captured, and the option for the other."""
    mode, other = ("train", "eval") if train else ("eval", "train")
    return f"{source} runs in {mode} mode; --{other} runs it in the other"


def of_project(options: argparse.Namespace) -> int:
    """Run one batch of the project's data through its network; return 1 if there are findings."""
    chosen = capture_options(options)
    if options.on is not None:
        raise console.CommandError(
            "--on is for a model; a project has its data, and --random needs none"
        )
    project = nets.read(options)
    analysis = nets.sound(project, alone=options.random)
    job = preflight.job(project, analysis, str(options.data) if options.data else None)
    labels = node_labels(project.graph, custom_layers.ops_of(project))
    request = CaptureRequest(
        job, labels, not options.eval, _weights(options, analysis.source), chosen
    )
    console.warn(mode_line(options.project, not options.eval))
    try:
        if (
            options.out is not None or chosen.outputs
        ):  # a graph is requested, or the outputs have to be checked
            with batch_of(request).hold() as graph:
                _print(list(notes_of_tape(graph.tape)) if chosen.second_order else [])
                played, stopped = (
                    play_through(graph) if graph_output.plays(options) else (None, "")
                )
                if options.out is not None:
                    carried = project_file.bytes_for(project, options.out)
                    graph_output.write(
                        graph.tape, options, None, played, stopped, carried
                    )
        if not options.findings and not options.checks:
            return 0
        batch = batch_of(request.diagnosed)
        if chosen.left_out:
            print(console.printable(chosen.left_out))
        return _diagnosed(batch, options)
    except CaptureError as error:
        raise console.CommandError(rephrased_error(str(error), chosen), 1) from error


def _weights(options: argparse.Namespace, source: Source) -> WeightsChoice:
    """Return the newest weights of a stored run of this network, and print which; None without any, or if not
    wanted.
    """
    if options.weights is not None:
        return WeightsFile(str(options.weights), options.weights.name)
    try:
        checkpoint = (
            None
            if options.start_weights
            else newest.newest_checkpoint(store.runs_beside(options.project), source)
        )
    except OSError as error:
        raise console.CommandError(
            f"the stored runs cannot be read: {error.strerror or error}; pass "
            "--start-weights to ignore them",
            1,
        ) from error
    if checkpoint is None:
        return InitialWeights()
    path, description = checkpoint
    console.warn(
        f"weights {description}; --start-weights uses the start weights of a run"
    )
    return WeightsFile(str(path), description)


def rephrased_error(message: str, chosen: CaptureOptions) -> str:
    """Rephrase errors of torch and Python about a missing output or module."""
    if chosen.outputs and "list index out of range" in message:
        return f"--outputs {','.join(str(index + 1) for index in chosen.outputs)}: the network has fewer outputs"
    if chosen.checkpoint and "has no attribute" in message:
        return f"--checkpoint {', '.join(chosen.checkpoint)}: {message.rpartition(': ')[2]}"
    return message


def _diagnosed(batch: TrainingBatch, options: argparse.Namespace) -> int:
    count = 0
    if options.findings:
        lines, count = report.findings(batch)
        _print(lines)
    for name, layer in options.checks.items():
        lines, wrong = checks.check(name).of_batch(batch, layer)
        _print(lines)
        count += wrong
    return int(count > 0)


def _print(lines: list[str]) -> None:

    for line in lines:
        print(console.printable(line))
