"""What the arguments of `tapedeck diff` name: projects, models, runs, checkpoints and files of weights."""

from __future__ import annotations

import argparse
from pathlib import Path

from msgspec.structs import replace

from app.cli import console, models, nets
from app.engine.requests.observe import Observe
from app.features.compare.values import DiffSide, side_of_project
from app.project.weights.state_dict_diff import SUFFIXES
from app.runs import named, store


def side_of(
    text: str, options: argparse.Namespace, arguments: str, weights: str | None
) -> DiffSide:
    """Parse one side. Raises CommandError."""
    if not Path(text).exists() and "@" in text:
        text, _, of = text.rpartition("@")
        if weights is not None:
            raise console.CommandError(f"{text}@{of}: the weights are given twice")
        weights = of
    path = Path(text)
    run = named.named_run(path, weights or "")
    if run is None and weights is not None and not Path(weights).is_file():
        raise console.CommandError(f"there is no file {weights}")
    if run is None and path.is_file() and path.suffix in SUFFIXES:
        if weights is not None:
            raise console.CommandError(
                f"{text} contains only weights; pass a model, such as file.py:Class@{path.name}"
            )
        return DiffSide(text, None, str(path.absolute()))
    file = "" if weights is None else str(Path(weights).absolute())
    if run is None and path.suffix != named.PROJECT:
        return _model(
            text,
            text if weights is None else f"{text}@{Path(weights).name}",
            options,
            arguments,
            file,
        )
    if arguments != "{}" or options.input:
        raise console.CommandError(
            f"--args and --input are for a model, and {path} is a project"
        )
    read_from = path if run is None else run.kept.folder / store.PROJECT
    project = nets.read(argparse.Namespace(project=read_from, trust=options.trust))
    name = text if run is None else run.kept.record.title
    side = side_of_project(
        project,
        name,
        lambda: nets.sound(project, alone=True).source,
        file if run is None else "",
        run,
    )
    if project.opened is not None:
        assert isinstance(side.model, Observe)
        models.admit(side.model.source, side.model.folder, options.trust)
    return side


def _model(
    text: str, name: str, options: argparse.Namespace, arguments: str, weights: str
) -> DiffSide:
    request = models.request_of(options, text, arguments)
    return DiffSide(name, replace(request, meta=False, train=False), weights)
