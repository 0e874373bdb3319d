"""`tapedeck autograd`: the graph of a project's net, of a function in a person's file, or of a few lines of PyTorch."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.autograd.snippets import Graph, SnippetAnswer
    from app.autograd.tape import Tape

WORDS = """
SOURCE is a project, FILE.py with a snippet, or FILE.py:FUNCTION. A snippet shows the graph below its last expression,
its `loss`, or its newest tensor; a FUNCTION what it gives back: a loss, tensors, or a net that is then called with what
--input says. A file of your own runs only with --trust, or once it is trusted in the window, in a process of its own.
"""
SECONDS, GIGABYTES = 120.0, 4.0


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    from app import cli

    words = "the grad_fn graph of one batch, or of a file's code, as a picture or as data"
    parser = commands.add_parser("autograd", help=words, description=WORDS)
    parser.add_argument("project", type=Path, metavar="SOURCE")
    parser.add_argument("--out", type=Path, required=True, help="a file ending in " + ", ".join(cli.PICTURES))
    parser.add_argument("--unfolded", action="store_true", help="every node instead of one box a layer")
    parser.add_argument("--group", choices=("layer", "block", "none"), default="layer", help="boxes a layer (layer), "
                        "blocks within blocks, or none at all")  # fmt: skip
    parser.add_argument("--trust", action="store_true", help="run FILE.py, or the project's own files, this once")
    batch = parser.add_argument_group("of a project")
    batch.add_argument("--batch", type=cli.positive, default=16, help="samples in the batch (16)")
    batch.add_argument("--eval", action="store_true", help="in eval mode instead of train mode")
    batch.add_argument("--data", type=Path, help="folder of downloaded data sets")
    file = parser.add_argument_group("of a file")
    file.add_argument("--of", metavar="NAME", help="the tensor whose graph is wanted")
    file.add_argument("--input", action="append", default=[], metavar="1x3x32x32[:int64]", help="what is taken")
    file.add_argument("--timeout", type=float, default=SECONDS, help=f"seconds that it may take ({SECONDS:.0f})")
    file.add_argument("--memory", type=float, default=GIGABYTES, help=f"GiB that it may take ({GIGABYTES:.0f})")
    parser.set_defaults(command=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Capture the graph and write it."""
    from app import cli

    path: Path = options.out
    if path.suffix not in cli.PICTURES:
        raise cli.Refused(f"{path} ends in {path.suffix or 'nothing'}; it can be {', '.join(cli.PICTURES)}")
    file, _, function = str(options.project).rpartition(":")
    if function.isidentifier() and file.endswith(".py"):
        return _of_file(options, Path(file), function)
    if options.project.suffix == ".py":
        return _of_file(options, options.project, "")
    _write(_of_project(options), options)
    return 0


def _of_project(options: argparse.Namespace) -> Tape:
    """One batch of the project's data through its net."""
    from app import cli, inspection, own_layers, preflight

    project = cli.read(options)
    analysis = cli.sound(project)
    from app.autograd.capture import CaptureError
    from app.data.sources import DataError

    job = preflight.job(project, analysis, str(options.data) if options.data else None)
    labels = inspection.node_labels(project.graph, own_layers.ops_of(project))
    try:
        return inspection.capture_batch(job, labels, train=not options.eval, batch=options.batch)
    except (CaptureError, DataError) as error:
        raise cli.Refused(str(error), 1) from error


def _of_file(options: argparse.Namespace, file: Path, function: str) -> int:
    """Run a file in a process of its own; what it prints goes to stderr."""
    from app import cli, model_import, snippet_child
    from app.autograd.snippets import Limits, Snippet

    text = _trusted(options, file)
    try:
        inputs = tuple((one.shape, one.dtype) for one in map(model_import.parse_input, options.input))
    except model_import.ImportFailed as error:
        raise cli.Refused(str(error)) from error
    if not (options.timeout > 0 and options.memory > 0):
        raise cli.Refused("--timeout and --memory are numbers above 0")
    snippet = Snippet(text, file.name, function, inputs, str(file.resolve().parent))
    answer = snippet_child.run(snippet, Limits(options.timeout, int(options.memory * (1 << 30))))
    sys.stderr.write(answer.output)
    graph = _wanted(answer, options.of)
    if graph is not None:
        _write(graph.tape, options, _told(answer, graph))
    if answer.error is not None or answer.ended != "done" or graph is None:
        raise cli.Refused(f"{options.project}: {_why(answer, options.of)}", 1)
    return 0


def _trusted(options: argparse.Namespace, file: Path) -> str:
    """The text of a file that may run."""
    from app import cli, layer_files
    from app.trust import Trust, default_file

    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise cli.Refused(f"{file}: {getattr(error, 'strerror', None) or error}") from error
    if not options.trust and not Trust(default_file()).is_trusted(layer_files.digest(text)):
        raise cli.Refused(f"{file} was not run; look at it, then give --trust", 1)
    return text


def _wanted(answer: SnippetAnswer, name: str | None) -> Graph | None:
    return answer.graph if name is None else answer.graph_of(name)


def _why(answer: SnippetAnswer, name: str | None) -> str:
    """Why there is no graph, or none of what ran to its end, in one line."""
    if answer.error is not None:
        where = f" in line {answer.error.line}" if answer.error.line else ""
        return f"{answer.error.kind}{where}: {answer.error.message}".strip()
    if answer.words:
        return answer.words
    known = ", ".join(graph.name for graph in answer.graphs)
    return f"no tensor called {name} has a graph; there are {known}"


def _told(answer: SnippetAnswer, graph: Graph) -> dict[str, Any]:
    """What a file of JSON says beside the graph."""
    from dataclasses import asdict

    return {"of": graph.name, "freed_at": graph.freed_at, "tensors": [asdict(tensor) for tensor in answer.tensors]}


def _write(tape: Tape, options: argparse.Namespace, told: dict[str, Any] | None = None) -> None:
    """Write the picture or the data, and print where that is."""
    from app import cli
    from app.autograd.tape import to_json

    path: Path = options.out
    if path.suffix == ".json":
        cli.write_text(path, json.dumps({**to_json(tape), **(told or {})}, indent=1) + "\n")
        return
    from app.autograd.blocks import group_by_block
    from app.autograd.drawing import to_drawing
    from app.autograd.grouping import group_by_layer

    # The lines of a snippet are few, and one box a line would not say what autograd did.
    unfolded: frozenset[str] | None = None
    blocks, grouped = options.group == "block", options.group != "none"
    if told is None or options.unfolded:
        groups = group_by_block(tape) if blocks else group_by_layer(tape)
        unfolded = frozenset(group.key for group in groups) if options.unfolded else frozenset()
    print(cli.picture(to_drawing(tape, unfolded, grouped=grouped, blocks=blocks), path))
