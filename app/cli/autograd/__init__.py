"""`tapedeck autograd`: the graph of a project's network, a function in a Python file, or a snippet."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cli import arguments, models

if TYPE_CHECKING:
    from app.autograd.playback.steps import PassResult
    from app.autograd.snippets.snippet import SnippetAnswer, TensorGraph
    from app.autograd.tape import Tape

WORDS = """
SOURCE is a project, FILE.py with a snippet, FILE.py:FUNCTION, or any model: FILE.py:Class, package.module:Class,
package.module:factory(), torchvision:resnet18, timm:NAME, hf:NAME_OR_FOLDER, diffusers:Class. A snippet shows the graph
of its last expression, its `loss`, or its newest tensor; a FUNCTION the graph of what it returns: a loss, tensors, or a
network that is then called with --input; a model the graph of the loss it computes itself, else of all its outputs.
Your own files run once they are trusted, by --trust or in the window, until one changes, in a separate process.
"""
GIGABYTES = 4.0
STOPPED = "the steps before that"


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    from app.cli.autograd import project_graph

    words = "write the grad_fn graph of one batch, or of a file's code, as a picture or as data"
    parser = commands.add_parser("autograd", help=words, description=WORDS)
    parser.add_argument("project", type=Path, metavar="SOURCE")
    add_output(parser)
    parser.add_argument("--findings", action="store_true", help="diagnose the gradients: problem, location and fix")
    parser.add_argument(
        "--gradcheck",
        nargs="?",
        const="",
        metavar="LAYER",
        help="compare backward's gradient with finite differences (gradcheck), for a layer or for all",
    )
    arguments.add(parser, "--trust")
    batch = parser.add_argument_group("project options")
    batch.add_argument(
        "--batch",
        type=arguments.positive,
        help="samples in the batch (default: the training batch size; fewer if random inputs would exceed 1 GiB)",
    )
    mode = batch.add_mutually_exclusive_group()
    arguments.add(mode, "--train", help="use train mode, which is the default for a project")
    arguments.add(mode, "--eval", help="use eval mode, which is the default for a model")
    arguments.add(batch, "--weights")
    batch.add_argument(
        "--start-weights",
        action="store_true",
        help="use the start weights of a run, not the newest weights of a stored run",
    )
    arguments.add(batch, "--data")
    project_graph.add_options(batch)
    model = parser.add_argument_group("model options")
    arguments.add(model, *arguments.MODEL, "--seed")
    models.add_first_batch(parser, "--on")
    file = parser.add_argument_group("file options")
    file.add_argument("--of", metavar="NAME", help="name of the tensor whose graph to show")
    arguments.add(file, "--timeout")
    file.add_argument(
        "--memory", type=arguments.above_zero, default=GIGABYTES, help=f"memory limit in GiB ({GIGABYTES:.0f})"
    )
    parser.set_defaults(command=run)
    return parser


def add_output(parser: Any) -> None:
    """Add the options of the file that a graph is written to."""
    from app import cli

    parser.add_argument(
        "--out",
        type=Path,
        help=f"output file ending in {', '.join(cli.PICTURES)}, or in .html for a page that plays the backward pass",
    )
    cli.add_paper(parser, carries=True)
    parser.add_argument(
        "--play",
        action="store_true",
        help="play the backward pass, and add its order, norms and bytes to the JSON file",
    )
    parser.add_argument("--unfolded", action="store_true", help="show every node instead of one box per layer")
    parser.add_argument(
        "--group",
        choices=("layer", "block", "none"),
        default="layer",
        help="one box per layer, nested blocks, or no grouping",
    )


def check_output(options: argparse.Namespace) -> None:
    """Refuse a file that cannot be written. Raises CommandError."""
    from app import cli

    path: Path | None = options.out
    if path is not None and path.suffix not in (*cli.PICTURES, ".html"):
        raise cli.CommandError(
            f"{path} ends in {path.suffix or 'nothing'}; it can be {', '.join(cli.PICTURES)} or .html"
        )
    if path is not None:
        cli.has_place(path)
    if options.play and (path is None or path.suffix not in (".json", ".html")):
        raise cli.CommandError("--play writes the playback into a JSON or HTML file: pass --out F.json")


def run(options: argparse.Namespace) -> int:
    """Capture the graph and write what was requested; return 1 if there are findings."""
    from app import cli

    if options.out is None and not options.findings and options.gradcheck is None:
        raise cli.CommandError("pass --out FILE, --findings or --gradcheck")
    check_output(options)
    if models.is_model(options):
        from app.cli.autograd import model_graph

        return model_graph.of_model(options)
    file, _, function = str(options.project).rpartition(":")
    if function.isidentifier() and file.endswith(".py"):
        return _of_file(options, Path(file), function)
    if options.project.suffix == ".py":
        return _of_file(options, options.project, "")
    from app.cli.autograd import project_graph

    return project_graph.of_project(options)


def plays(options: argparse.Namespace) -> bool:
    """Return whether the requested output needs playback."""
    return options.out is not None and (options.play or options.out.suffix == ".html")


def _of_file(options: argparse.Namespace, file: Path, function: str) -> int:
    """Run a file in a separate process; its output goes to stderr."""
    from app import cli
    from app.autograd.snippets.snippet import Limits, Snippet
    from app.cli.autograd import project_graph
    from app.engine import snippet_process
    from app.engine.requests import import_model

    project_graph.refuse_options(options)
    if options.gradcheck is not None and not function:
        raise cli.CommandError("--gradcheck needs a network or a function: pass FILE.py:FUNCTION")
    text = _trusted(options, file)
    inputs = tuple((one.shape, one.dtype or "float32") for one in map(import_model.parse_input, options.input))
    snippet = Snippet(text, file.name, function, inputs, str(file.resolve().parent), plays(options), options.findings,
                      options.gradcheck)  # fmt: skip
    answer = snippet_process.run(snippet, Limits(options.timeout, int(options.memory * (1 << 30))))
    sys.stderr.write(answer.output)
    graph = _selected_graph(answer, options.of)
    if graph is not None and options.out is not None:
        write(graph.tape, options, _playback_json(answer, graph), graph.played, graph.stopped)
    for line in answer.report_lines:
        print(cli.printable(line))
    looked = options.out is None and answer.report_lines
    if answer.error is not None or answer.ended != "done" or (graph is None and not looked):
        raise cli.CommandError(f"{options.project}: {_no_graph_reason(answer, options.of)}", 1)
    return int(answer.found > 0)


def _trusted(options: argparse.Namespace, file: Path) -> str:
    """Return the text of a file that is trusted with what it imports from its folder."""
    from app import cli
    from app.source import layer_files, own_files
    from app.source.trust import TrustStore, default_file
    from app.util import regular_files

    try:
        regular_files.check(file)
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise cli.CommandError(f"{file}: {reason}") from error
    files = own_files.read(file, file.stem)
    shown = TrustStore(default_file()).entry(layer_files.digest(text))  # in the window, where it runs without others
    alone = files is not None and len(files.files) == 1 and shown is not None and shown.path == str(file.absolute())
    models.admit_files(files, str(file), options.trust or alone)
    return text


def _selected_graph(answer: SnippetAnswer, name: str | None) -> TensorGraph | None:
    return answer.graph if name is None else answer.graph_of(name)


def _no_graph_reason(answer: SnippetAnswer, name: str | None) -> str:
    """Explain in one line why there is no graph."""
    if answer.error is not None:
        return answer.error.sentence(answer.error.message)
    if answer.words:
        return answer.words
    known = ", ".join(graph.name for graph in answer.graphs)
    return f"no tensor called {name} has a graph; there are {known}"


def _playback_json(answer: SnippetAnswer, graph: TensorGraph) -> dict[str, Any]:
    """Return the additional entries of a JSON file."""
    from dataclasses import asdict

    return {"of": graph.name, "freed_at": graph.freed_at, "tensors": [asdict(tensor) for tensor in answer.tensors]}


def write(
    tape: Tape, options: argparse.Namespace, extra: dict[str, Any] | None, played: PassResult | None, stopped: str = "",
    project: bytes = b"",
) -> None:  # fmt: skip
    """Write the picture, the page or the data, and print the path. Raises CommandError for a backward pass that cannot
    be played, or that was `stopped` by what it raised, after the file is written.

    `extra` are additional entries of a JSON file, `project` the bytes of the project that a picture carries.
    """
    from app import cli
    from app.autograd.pictures.replay_html import played_json, replay_html
    from app.autograd.tape import to_json

    path: Path = options.out
    missing = stopped if plays(options) else ""
    if plays(options) and played is None and not stopped:
        missing = "The backward pass cannot be played."
    if path.suffix == ".json":
        more: dict[str, Any] = {"played": played_json(played, stopped)} if played is not None else {}
        if missing:
            more = {**({"played": None} if played is None else more), "not_played": missing}
        cli.write_text(path, json.dumps({**to_json(tape), **(extra or {}), **more}, indent=1) + "\n")
        if missing:
            raise cli.CommandError(f"{missing} {path} contains {'the graph only' if played is None else STOPPED}", 1)
        return
    if missing and (played is None or path.suffix != ".html"):
        raise cli.CommandError(missing, 1)
    from app.autograd.blocks import group_by_block
    from app.autograd.grouping import fold, group_by_layer, opened
    from app.autograd.pictures.diagram import draw

    groups = group_by_block(tape) if options.group == "block" else group_by_layer(tape)
    everything = frozenset(group.key for group in groups)
    # Snippets have few lines, and one box per line would hide autograd's nodes.
    unfolded = everything if options.unfolded else frozenset() if extra is None else opened(groups)
    grouped = options.group != "none"
    folded = fold(tape, groups, unfolded if grouped else everything)
    drawing = draw(tape, folded, grouped=grouped)
    if path.suffix == ".html":
        assert played is not None
        title = f"{options.project.name.removesuffix('.tape')}: backward"
        cli.write_text(path, replay_html(tape, folded, drawing, played, title=title, failed=stopped))
        if missing:
            raise cli.CommandError(f"{missing} {path} contains {STOPPED}", 1)
        return
    print(cli.picture(drawing, path, options, project))
