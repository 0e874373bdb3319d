"""What the arguments of `tapedeck diff` name: projects, models, runs, checkpoints and files of weights."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.engine.requests.diff import DiffSide
    from app.engine.requests.observe import Observe
    from app.runs.store import Kept

FILES = (".pt", ".pth", ".safetensors", ".ckpt", ".bin")


def side_of(text: str, options: argparse.Namespace, arguments: str, weights: str | None) -> DiffSide:
    """Return what one argument names. Raises CommandError."""
    from app import cli
    from app.engine.requests.diff import DiffSide
    from app.engine.requests.observe import Observe

    if not Path(text).exists() and "@" in text:
        text, _, of = text.rpartition("@")
        if weights is not None:
            raise cli.CommandError(f"{text}@{of}: the weights are given twice")
        weights = of
    path = Path(text)
    if (kept := stored_run(text, weights)) is not None:
        weights = str(_checkpoint(*kept))
        path = kept[0].folder / "project.tape"
    elif weights is not None and not Path(weights).is_file():
        raise cli.CommandError(f"there is no file {weights}")
    elif path.is_file() and path.suffix in FILES:
        if weights is not None:
            raise cli.CommandError(f"{text} holds weights alone; pass a model, such as file.py:Class@{path.name}")
        return DiffSide(text, None, str(path.absolute()))
    name = text if weights is None else f"{text}@{Path(weights).name}"
    weights = str(Path(weights).absolute()) if weights is not None else ""
    if path.suffix == ".tape":
        if arguments != "{}" or options.input:
            raise cli.CommandError(f"--args and --input are for a model, and {path} is a project")
        project = cli.read(argparse.Namespace(project=path, trust=options.trust))
        if (opened := project.opened) is not None:  # is made by its own code, and has its own inputs
            model = Observe(opened.source, opened.arguments, opened.inputs, opened.folder)
            return DiffSide(name, _trusted(model, options), weights)
        return DiffSide(name, cli.sound(project, alone=True).source, weights, project.training.start)
    return _model(text, name, options, arguments, weights)


def _model(text: str, name: str, options: argparse.Namespace, arguments: str, weights: str) -> DiffSide:
    from app.cli import draw
    from app.engine.requests.diff import DiffSide
    from app.sources.spec import AskedModel

    request = draw.request_of(AskedModel(text, arguments, tuple(options.input), trust=options.trust))
    return DiffSide(name, replace(_trusted(request, options), meta=False), weights)


def _trusted(model: Observe, options: argparse.Namespace) -> Observe:
    """Return a model whose code may run. Raises CommandError."""
    from app import cli

    if model.source.own_code and not options.trust:
        raise cli.CommandError(f"{model.source.where or model.source} was not run; review it, then pass --trust", 1)
    return model


def stored_run(text: str, name: str | None) -> tuple[Kept, str] | None:
    """Return the stored run that an argument names, and which of its checkpoints: "best", "last" or ""."""
    from app import cli
    from app.runs import record, store

    path = Path(text)
    try:
        if path.suffix == ".tape" and name is not None and not Path(name).is_file():
            run, _, which = name.partition("/")
            return store.find(store.runs_beside(path), run), which
        if name is None and path.is_dir() and (path / store.PROJECT).is_file():
            return store.Kept(path, record.read(path)), ""
        inside = path.parent.parent
        if name is None and path.parent.name == store.CHECKPOINTS and (inside / store.PROJECT).is_file():
            return store.Kept(inside, record.read(inside)), path.stem
    except (record.RunError, OSError) as error:
        raise cli.CommandError(str(error)) from error
    return None


def _checkpoint(kept: Kept, which: str) -> Path:
    """Return the checkpoint of a run: its best weights, or its last, or the newest."""
    from app import cli
    from app.runs.checkpoint_files import checkpoints

    found = {one.path.stem: one.path for one in checkpoints(kept)}
    if not found:
        raise cli.CommandError(f"{kept.record.title} has no checkpoints; train with --save-every N", 1)
    if which and which not in found:
        raise cli.CommandError(f"{kept.record.title} has no checkpoint {which}; there are {', '.join(found)}")
    return next((found[name] for name in (which, "best", "last") if name in found), next(iter(found.values())))
