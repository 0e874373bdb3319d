"""`tapedeck autograd` for any model: what is captured of it, and what is written."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from msgspec.structs import replace

from app.autograd.errors import CaptureError
from app.autograd.playback.steps import PassResult
from app.cli import console, models
from app.cli.autograd import graph_output, project_graph
from app.engine.requests.observe import ModelCapture, ModelReport
from app.engine.requests.playback import Steps
from app.engine.tasks import observe as task

if TYPE_CHECKING:
    from app.engine.requests.observe import ModelReported


def of_model(options: argparse.Namespace) -> int:
    """Capture a model and write the requested files; return 1 if there are findings."""
    request = _request(options)

    def report(request: ModelReport) -> ModelReported:
        return task.report(request)

    try:
        answer = models.answer(request, request.batch.model, options.timeout, report)
    except CaptureError as error:
        message = project_graph.rephrased_error(str(error), request.batch.options)
        raise console.CommandError(f"{options.project}: {message}", 1) from error
    console.warn(project_graph.mode_line(options.project, options.train))
    if answer.remark:
        console.warn(answer.remark)
    for line in answer.lines:
        print(console.printable(line))
    if answer.tape is not None:
        played = (
            PassResult(Steps(answer.steps).records)
            if answer.steps is not None
            else None
        )
        graph_output.write(answer.tape, options, None, played, answer.stopped)
    return int(answer.found > 0)


def _request(options: argparse.Namespace) -> ModelReport:
    unfit = [
        f"--{name.replace('_', '-')}"
        for name in (
            "random",
            "batch",
            "start_weights",
            "of",
            *(("data",) if options.on is None else ()),
        )
        if getattr(options, name, None)
    ]
    if unfit:
        raise console.CommandError(
            f"{', '.join(unfit)}: not for a model; --input describes what it is called with"
        )
    chosen = project_graph.capture_options(options)
    model = models.request_of(options, str(options.project))
    weights = str(options.weights.absolute()) if options.weights else ""
    batch = ModelCapture(
        replace(model, meta=False), options.train, chosen, options.seed, weights
    )
    return ModelReport(
        batch,
        options.out is not None,
        graph_output.plays(options),
        options.findings,
        options.checks,
    )
