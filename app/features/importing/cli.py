"""`tapedeck import`: an existing model as a project, or weights as a table, compared with a project and loaded."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from app.builder.analysis import analyse
from app.builder.catalog.custom import read_text
from app.cli import console, files, models, nets
from app.engine.requests import observe
from app.features.importing import process, task, values
from app.preflight import synthetic_data
from app.preflight.opened import analysis_of, project_of
from app.project import custom_layers, file
from app.project.project import Project
from app.project.weights import start_weights, state_dict_diff, state_dicts
from app.project.weights.state_dict_diff import KINDS
from app.project.weights.state_dict_files import holds_weights
from app.source import layer_files
from app.sources.finding import file_of, files_of
from app.sources.spec import parse_arguments, parse_source
from app.util.leftovers import TemporaryFolder

if TYPE_CHECKING:
    from app.builder.results import Analysis
    from app.project.weights.state_dict_diff import Diff
    from app.project.weights.state_dicts import StateDict

MARKS = {"same": "=", "dtype": "~", "shape": "!", "missing": "-", "unexpected": "+"}

# Refusals of models that run, but that no drawing is.
ONLY_OBSERVED = (
    "not_followed",
    "another_net",
    "data_dependent",
    "failed",
)


def run(options: argparse.Namespace) -> int:
    """Import, and print the result."""
    if holds_weights(Path(options.source)):
        return _of_state_dict(options)
    if options.into or options.strict or options.partial or options.suggested:
        raise console.CommandError(
            "--into, --strict, --partial and --suggested are for a state_dict, such as a .pt, .ckpt or .safetensors"
        )
    if options.out is None:
        raise console.CommandError("pass -o P, the .tape file to create")
    console.can_be_written(options.out, (".tape",), "a project is")
    if options.observe:
        return _observed(options)
    with TemporaryFolder() as folder:
        return _import(options, Path(folder))


def _observed(options: argparse.Namespace) -> int:
    """Write a project that refers to the model's own code."""
    digest = files.digest(options.out)
    model = nets.open_model(options, options.source)
    project = project_of(model, Project(nets.name(model)))
    if options.synthetic_data:
        project = _on_synthetic_data(project, analysis_of(project))
    if options.trust:
        custom_layers.trust_opened(model)
    backup = file.write(project, options.out, digest)
    files.note_backup(options.out, backup)
    files.note_open(options.out)
    print(
        f"{options.out}: {model.interface.model}, {model.interface.parameters:,} parameters, by its own code"
    )
    if model.refusal:
        print(model.refusal)
    return 0


def _import(options: argparse.Namespace, folder: Path) -> int:
    """Import a model; its files are in a folder for the time being."""
    out: Path = options.out
    digest = files.digest(out)
    request = _request(options)
    try:
        source, here = request.source, request.where
        runs_user_code = source.own_code or ".py:" in request.example
        if runs_user_code:
            imported = files_of(source, here)
            models.admit_files(imported, source.where or str(source), options.trust)
        models.admit_example(request.example, options.trust)
        source_digest = ""
        if request.runs_file and Path(source.where).is_file():
            source_digest = layer_files.digest(read_text(Path(source.where)))
        if runs_user_code:
            project = process.import_file(request, folder, options.timeout)
        else:
            project = task.answer(request, folder)
        custom_layers.trust(project, source_digest)
        custom_layers.admit(
            project, options.trust
        )  # a part that was not followed is a class of the file that just ran
        analysis = analyse(project.graph, custom_layers.ops_of(project))
        if options.synthetic_data:
            project = _on_synthetic_data(project, analysis)
        backup = file.write(project, out, digest)
    except values.ImportTimeoutError as error:
        raise console.CommandError(
            f"{error}; increase the limit with --timeout SECONDS", 1
        ) from error
    except values.ModelImportError as error:
        if isinstance(error, values.ImportRequestError):
            raise
        message = values.with_cure(error)
        from_anywhere = not request.runs_file and request.source.kind != "torchvision"
        if from_anywhere and error.code in ONLY_OBSERVED:
            message = (
                f"{message.removesuffix('.')}. "
                f"`tapedeck draw {request.source}` draws it from one forward pass, and --observe "
            )
            message += "keeps it as a project that can be trained"
        raise console.CommandError(message, 1) from error
    nodes = len(project.graph.nodes) + sum(
        len(block.graph.nodes) for block in project.blocks.values()
    )
    numbers = f", {analysis.total_parameters:,} parameters" if analysis.runnable else ""
    lines = analysis.source.text.count("\n")
    files.note_backup(out, backup)
    files.note_open(out)
    print(
        f"{out}: {nodes} nodes, {len(project.blocks)} blocks{numbers}, {lines} lines of code"
    )
    if project.origin is not None and project.origin.checked:
        print(project.origin.checked)
    for remark in values.remarks(project):
        print(remark)
    if (start := file.read(out).training.start) is not None:
        print(start.path)
    for problem in analysis.errors:
        print(f"error: {problem.message}. {problem.reason}")
    return 1 if analysis.errors else 0


def _request(options: argparse.Namespace) -> values.ImportModel:
    """Return the request for the model that the command names. Raises SourceError and ImportRequestError."""
    here = str(Path.cwd())
    source = parse_source(options.source).as_run
    request = values.ImportModel(
        source,
        parse_arguments(options.args),
        values.parse_inputs(options.input),
        options.pretrained,
        not options.no_weights,
        options.take_inits,
        example=observe.example_of(models.asked_model(options, options.source)),
        where=here if source.own_code else "",
    )
    if source.kind == "torchvision" and request.named_inputs:
        raise values.ImportRequestError(
            f"{options.input[0]}: inputs of torchvision's models are sizes and dtypes alone, as 1x3x32x32",
            "input",
        )
    if source.kind == "module" and request.inputs and not request.named_inputs:
        file = file_of(source, here)
        if file is not None and file.parent == Path(here):
            source = replace(source, kind="file", where=file.name)
    return replace(request, source=source)


def _on_synthetic_data(project: Project, analysis: Analysis) -> Project:
    """Return the project with data of its net's shapes. Raises CommandError."""
    synthetic = synthetic_data.with_these(project, analysis)
    if synthetic is None:
        requirement = (
            "they need inputs of known shape whose first dimension is the batch"
        )
        raise console.CommandError(
            f"there are no synthetic data for this network: {requirement}; omit --synthetic-data",
            1,
        )
    return synthetic


def _of_state_dict(options: argparse.Namespace) -> int:
    """Print the table; with --into also the comparison, and load the requested tensors."""
    if (
        options.out
        or options.args != "{}"
        or options.input
        or options.keep_weights
        or options.pretrained
    ):
        raise console.CommandError(
            f"{options.source} contains weights but no network, so no project can be "
            "created from it; --into P compares them with the project P, and with "
            "--strict or --partial P starts from them"
        )
    if (options.strict or options.partial) and options.into is None:
        raise console.CommandError(
            "pass --into P, the project that the weights are for"
        )
    state = state_dicts.read(Path(options.source))
    for note in state.notes:
        print(console.printable(note))
    if options.into is None:
        print(
            *map(console.printable, state_dict_diff.table(state.infos).splitlines()),
            sep="\n",
        )
        return 0
    return _into(options, state)


def _into(options: argparse.Namespace, state: StateDict) -> int:
    path: Path = options.into
    digest = files.digest(path)
    project = nets.read(argparse.Namespace(project=path, trust=options.trust))
    analysis = nets.sound(file.with_start(project, None), alone=True)
    ours = state_dicts.net_infos(analysis.source)
    comparison = state_dict_diff.diff(state.infos, ours)
    offers = state_dict_diff.suggestions(state.infos, ours)
    if turned := state_dict_diff.transposed(state.infos, ours):
        print(console.printable(turned))
    if options.suggested and offers:
        comparison = state_dict_diff.diff(state.infos, ours, offers[-1].names)
    _print(comparison)
    for offer in offers:
        remark = (
            "followed"
            if options.suggested
            else "a suggestion; apply it with --suggested"
        )
        print(console.printable(f"{offer.text} ({remark})"))
    print(f"{path}: {comparison.counts_text()}")
    if not (options.strict or options.partial):
        return 0 if comparison.strict else 1
    if options.strict and not comparison.strict:
        raise console.CommandError(
            f"{path} was not changed: not every key matches; --partial loads those that do",
            1,
        )
    if not comparison.fitting:
        raise console.CommandError(
            f"{path} was not changed: no key of {state.path.name} matches", 1
        )
    start = start_weights.chosen(state, comparison)
    with console.writing(path):
        backup = file.write(file.with_start(project, start), path, digest)
    files.note_backup(path, backup)
    files.note_open(path)
    print(
        f"{path} starts from {len(comparison.fitting):,} of {len(ours):,} tensors of {state.path.name}"
    )
    return 0


def _print(comparison: Diff) -> None:
    """Print one line per key: a mark, the key, its tensor in the file and in the net."""
    wide = max(len(row.key) for row in comparison.rows) if comparison.rows else 0
    for row in comparison.rows:
        both = (
            f"{row.theirs}  ->  {row.ours}"
            if row.theirs and row.ours and row.theirs != row.ours
            else ""
        )
        tensor_text = both or str(row.ours or row.theirs)
        other = f"  (as {row.source})" if row.source not in ("", row.key) else ""
        print(
            console.printable(
                f"{MARKS[row.kind]} {row.key:<{wide}}  {tensor_text}{other}"
            )
        )
    print("  ".join(f"{mark} {KINDS[kind]}" for kind, mark in MARKS.items()))
