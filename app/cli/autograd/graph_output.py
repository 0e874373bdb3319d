"""The file that a graph is written to: a picture, a page that plays the backward pass, or data."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.autograd.blocks import group_by_block
from app.autograd.grouping import fold, group_by_layer, opened
from app.autograd.pictures.diagram import draw
from app.autograd.pictures.replay_html import played_json, replay_html
from app.autograd.tape import to_json
from app.cli import console, files

if TYPE_CHECKING:
    from app.autograd.playback.steps import PassResult
    from app.autograd.tape import Tape

STOPPED = "the steps before that"


def plays(options: argparse.Namespace) -> bool:
    """Return whether the requested output needs playback."""
    return options.out is not None and (options.play or options.out.suffix == ".html")


def write(
    tape: Tape,
    options: argparse.Namespace,
    extra: dict[str, Any] | None,
    played: PassResult | None,
    stopped: str = "",
    project: bytes = b"",
) -> None:
    """Write the picture, the page or the data, and print the path. Raises CommandError for a backward pass that cannot
    be played, or that was `stopped` by what it raised, after the file is written.

    `extra` are additional entries of a JSON file, `project` the bytes of the project that a picture carries.
    """
    path: Path = options.out
    missing = stopped if plays(options) else ""
    if plays(options) and played is None and not stopped:
        missing = "The backward pass cannot be played."
    if path.suffix == ".json":
        more: dict[str, Any] = (
            {"played": played_json(played, stopped)} if played is not None else {}
        )
        if missing:
            more = {
                **({"played": None} if played is None else more),
                "not_played": missing,
            }
        files.write_text(
            path,
            json.dumps({**to_json(tape), **(extra or {}), **more}, indent=1) + "\n",
        )
        if missing:
            raise console.CommandError(
                f"{missing} {path} contains {'the graph only' if played is None else STOPPED}",
                1,
            )
        return
    if missing and (played is None or path.suffix != ".html"):
        raise console.CommandError(missing, 1)
    groups = group_by_block(tape) if options.group == "block" else group_by_layer(tape)
    everything = frozenset(group.key for group in groups)
    # Snippets have few lines, and one box per line would hide autograd's nodes.
    unfolded = (
        everything
        if options.unfolded
        else frozenset()
        if extra is None
        else opened(groups)
    )
    grouped = options.group != "none"
    folded = fold(tape, groups, unfolded if grouped else everything)
    drawing = draw(tape, folded, grouped=grouped)
    if path.suffix == ".html":
        assert played is not None
        title = f"{options.project.name.removesuffix('.tape')}: backward"
        files.write_text(
            path,
            replay_html(tape, folded, drawing, played, title=title, failed=stopped),
        )
        if missing:
            raise console.CommandError(f"{missing} {path} contains {STOPPED}", 1)
        return
    print(files.picture(drawing, path, options, project))
