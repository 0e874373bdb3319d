"""Carries out `tapedeck compile`."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path

from msgspec import to_builtins

from app.cli import console, models, nets
from app.engine import observe_process
from app.engine.requests.observe import Observe
from app.features.compile.compute.compiling import compiled
from app.features.compile.values import Compile, Compiled
from app.sources.spec import parse_input


def run(options: argparse.Namespace) -> int:
    """Print breaks, recompiles and times; return 1 if there are breaks or recompiles."""
    request = request_of(options)
    if isinstance(request.model, Observe) and request.model.runs_own_code:
        result = observe_process.answer(request, request.model, options.timeout)
    else:
        with contextlib.redirect_stdout(sys.stderr):  # what a model prints
            result = compiled(request)
    for remark in result.remarks:
        console.warn(remark)
    if options.json:
        fields = to_builtins(result)
        record = {
            name: value
            for name, value in fields.items()
            if name not in ("calls", "remarks", *([] if options.code else ["code"]))
        }
        print(json.dumps(record, ensure_ascii=False))
    else:
        for line in lines(result, options.train):
            print(console.printable(line))
        for text in result.code if options.code else ():
            print("", *map(console.printable, text.splitlines()), sep="\n")
    return int(bool(result.breaks or result.recompiles))


def request_of(options: argparse.Namespace) -> Compile:
    """Return the request that the arguments describe. Raises CommandError."""
    also = tuple(tuple(map(parse_input, texts)) for texts in options.also)
    path: Path = options.project
    if models.is_model(options):
        model = models.request_of(options, str(path))
        return Compile(model, options.train, also, seed=options.seed)
    if options.args != "{}" or options.input or options.example or options.on:
        raise console.CommandError(
            "--args, --input, --example and --on are for a model, and this is a project"
        )
    project = nets.read(argparse.Namespace(project=path, trust=options.trust))
    if (of := project.opened) is not None:
        models.admit(of.source, of.folder, options.trust)
        models.admit_example(of.example, options.trust)
        model = Observe(
            of.source, of.arguments, of.inputs, of.folder, example=of.example
        )
        return Compile(model, options.train, also, seed=options.seed)
    source = nets.sound(project, alone=True).source
    return Compile(source, options.train, also, seed=options.seed)


def lines(result: Compiled, train: bool) -> list[str]:
    """Return the graph breaks, recompiles and times as lines of text."""
    what = "forward and backward" if train else "forward"
    shown = [
        f"called with: {'; '.join(result.calls)}",
        f"graphs: {result.graphs}",
    ]
    for broken in result.breaks:
        shown += [
            f"break at {broken.path or 'the model'} ({broken.line}): {broken.reason}",
            f"  cure: {broken.cure}",
        ]
    for again in result.recompiles:
        now = again.now or "something else"
        shown.append(
            f"recompile at {again.path or 'the model'}: {again.guard}: was {again.was}, is {now}"
        )
        shown.append(f"  cure: {again.cure}")
    if not result.breaks:
        shown.append("no graph breaks")
    if not result.recompiles:
        shown.append("no recompiles")
    times = [("eager", result.eager_seconds), ("compiled", result.compiled_seconds)]
    shown += [
        f"{name}: {1000 * seconds:.3g} ms a call ({what})"
        for name, seconds in times
        if seconds is not None
    ]
    return shown
