"""`tapedeck draw`: a picture of any model, from one forward pass."""

from __future__ import annotations

import argparse
import json
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from app.cli import arguments, console, files, models, streams
from app.engine.tasks import observe as task
from app.features.opened.cli.stored_weights import weights_of
from app.features.opened.folding import Tree, to_plain
from app.features.opened.picture import summary, to_drawing
from app.graphviz_export import TEXTS
from app.util.formatting import figure, shape_text

if TYPE_CHECKING:
    from app.diagram.diagram import Drawing
    from app.observe.observation import Observation


def run(options: argparse.Namespace) -> int:
    """Observe a model and write its picture; exit with 1 if it raised."""
    console.can_be_written(options.out, arguments.PICTURES, "a picture can end in")
    request = models.request_of(options, options.source, viewed=True)
    source = request.source
    if options.weights is not None and not (
        source.kind in ("hf", "diffusers") and Path(source.name).is_dir()
    ):
        raise console.CommandError(
            "--weights is for hf:FOLDER, a folder with safetensors"
        )
    with streams.StatusLine() as tell:
        observation = models.answer(
            request, request, options.timeout, partial(task.answer, tell=tell)
        )
    lines = (
        weight_lines(Path(source.name), options.weights)
        if options.weights is not None
        else []
    )
    _write(observation, options)
    status = _report(observation)
    for line in lines:
        print(console.printable(line))
    return status


def weight_lines(folder: Path, layer: str) -> list[str]:
    """Describe the stored weights of a layer, one a line. Raises SourceError."""
    return [
        f"{row.name}  {shape_text(row.shape, 'scalar')} {row.dtype}  mean {figure(row.mean)}, std {figure(row.std)}, "
        f"from {figure(row.least)} to {figure(row.greatest)}"
        for row in weights_of(folder, layer)
    ]


def _write(observation: Observation, options: argparse.Namespace) -> None:
    if options.out.suffix.lower() == ".json":
        plain = msgspec.json.format(
            json.dumps(to_plain(observation)).encode(), indent=1
        )  # json itself indents slowly
        files.write_text(options.out, plain.decode() + "\n")
        return
    with streams.StatusLine() as tell:
        tell("Choosing the modules that are open")
        drawing = _drawing(observation, options)
        tell(f"Drawing {len(drawing.boxes):,} boxes")
        description = files.picture(drawing, options.out, options)
    print(description)


def _drawing(observation: Observation, options: argparse.Namespace) -> Drawing:
    """Draw with everything open, or with as many levels as fit the size of the picture."""
    tree = Tree(observation)
    if options.unfold or options.depth is not None:
        return to_drawing(observation, _opened(tree, options), tree)
    if options.unfolded:
        return to_drawing(observation, frozenset(tree.by_key), tree)
    first = tree.opened()
    if (
        options.out.suffix.lower().removeprefix(".") in TEXTS
        or options.arranged == "dot"
    ):
        return to_drawing(observation, first, tree)
    from app.views.pictures.headless_pictures import first_that_fits

    levels = [
        first,
        *reversed([opened for opened, _ in tree.levels() if opened < first]),
    ]
    drawings = [partial(to_drawing, observation, opened, tree) for opened in levels]
    return first_that_fits(drawings, options.purpose, options.arranged)


def _opened(tree: Tree, options: argparse.Namespace) -> frozenset[str]:
    """Return what --depth and --unfold open. Raises CommandError for a module that was not called."""

    opened = tree.depth(1 if options.depth is None else options.depth)
    for path in options.unfold:
        more = tree.around(path)
        if not more:
            paths = {
                call.path
                for call in tree.observation.calls
                if call.kind == "module" and call.path
            }
            near = get_close_matches(path, paths, 4, 0.3) or sorted(paths)[:4]
            raise console.CommandError(
                f"--unfold {path}: no module with parts was called so; near it are {', '.join(near)}"
            )
        opened |= more
    return opened


def _report(observation: Observation) -> int:
    print(summary(observation))
    for remark in observation.remarks:
        console.warn(remark)
    if observation.failed is None:
        return 0
    call = observation.calls[observation.failed]
    where = f", line {call.line} of {Path(call.file).name}" if call.line else ""
    console.warn(
        f"{call.path or observation.name}: {call.name or observation.name}{where}: {observation.error}"
    )
    return 1
