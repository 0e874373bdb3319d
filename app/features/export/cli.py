"""`tapedeck export`: code, weights, training script, other formats, and certificate."""

from __future__ import annotations

import argparse
import keyword
import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from app.builder.diagram import drawn_paths
from app.cli import arguments, console, files, nets
from app.cli.streams import StatusLine
from app.data.config import DataConfig
from app.diagram.numbers import painted, read
from app.export.layers import write_model
from app.export.train_script import training_script, write_start
from app.export.weights_choice import weights_to_export
from app.features.export.compute.certify import certify_export
from app.features.export.compute.formats import write_format
from app.features.export.values import FormatError, onnx_missing, parse_axis
from app.preflight import preflight
from app.project import custom_layers, drawing_digest
from app.project import file as project_file
from app.runs import newest, store
from app.runs.record import RunError

if TYPE_CHECKING:
    from app.builder.results import Analysis
    from app.export.weights_choice import ExportWeights
    from app.features.export.values import Kind
    from app.project.project import Project

# Allowed endings of each option's file.
ENDINGS = {
    "code": (".py",),
    "script": (".py",),
    "weights": (".safetensors", ".pt"),
    "pt2": (".pt2",),
    "onnx": (".onnx",),
}
NOTHING = (
    "nothing to export; pass --code FILE, --weights FILE, --script FILE, --pt2 FILE, --onnx FILE, --drawing FILE or "
    "--certify"
)


def run(options: argparse.Namespace) -> int:
    """Write the requested files and print their paths."""
    _check_paths(options)
    project = nets.read(options)
    if project.opened is not None and options.on is None and not options.script:
        project = replace(
            project, data=DataConfig("")
        )  # its inputs are those that it was called with
    if options.drawing and project.opened is not None:
        source = project.opened.source
        raise console.CommandError(
            f"the net is defined by its own code and has no drawing; tapedeck draw {source} draws its calls"
        )
    if options.drawing:
        drawing = nets.drawing(
            project,
            "none" if options.folded else "all" if options.unfolded else "as drawn",
        )
        if options.numbers is not None:
            paths = drawn_paths(project, custom_layers.ops_of(project))
            drawing = painted(drawing, read(options.numbers, paths))
        print(
            files.picture(
                drawing,
                options.drawing,
                options,
                project_file.bytes_for(project, options.drawing),
            )
        )
        if not _needs_network(options):
            return 0
    analysis = nets.sound(project, alone=not options.script)
    if options.code:
        with console.writing(options.code):
            print(
                *write_model(
                    analysis.source,
                    options.code,
                    [options.script] if options.script else [],
                ),
                sep="\n",
            )
    if options.script:
        module = options.code.stem if options.code else None
        job = preflight.job(project, analysis)
        job = job.ran_with(
            newest.threads_of_newest(
                store.runs_beside(options.project), analysis.source
            )
        )
        with console.writing(options.script):
            files.write_text(
                options.script, training_script(job, module, options.script.name)
            )
            for path in write_start(job, options.script):
                print(path)
    if not (options.weights or options.certify or options.pt2 or options.onnx):
        return 0
    chosen = _weights(options, project, analysis)
    if options.weights:
        files.save(chosen.state_dict, options.weights)
        print(f"{options.weights}: weights {chosen.words}")
    return _proofs(options, project, analysis, chosen)


def _weights(
    options: argparse.Namespace, project: Project, analysis: Analysis
) -> ExportWeights:
    """Return the newest weights of a stored run of this network, else the start weights. Raises CommandError."""

    def newest_stored() -> ExportWeights | None:
        return newest.newest_of(
            store.runs_beside(options.project), analysis.source, options.best_weights
        )

    trained = None if options.start_weights else newest_stored
    try:
        return weights_to_export(
            analysis.source, project.training.seed, trained, project.training.start
        )
    except RunError as error:
        raise console.CommandError(f"--best-weights: {error}", 1) from error
    except OSError as error:
        raise console.CommandError(
            f"the stored runs cannot be read: {error.strerror or error}; pass "
            "--start-weights to ignore them",
            1,
        ) from error


def _needs_network(options: argparse.Namespace) -> bool:
    """Return whether a sound net is needed; a drawing alone needs none."""
    return bool(
        options.code
        or options.script
        or options.certify
        or any(getattr(options, name) for name in ENDINGS)
    )


def _check_paths(options: argparse.Namespace) -> None:
    """Reject impossible output paths before anything is written. Raises CommandError."""

    if not (_needs_network(options) or options.drawing):
        raise console.CommandError(NOTHING)
    occupied = {os.path.realpath(options.project): "the project itself"}
    for name, endings in (*ENDINGS.items(), ("drawing", arguments.PICTURES)):
        path: Path | None = getattr(options, name)
        if path is None:
            continue
        console.can_be_written(
            path, endings, "weights are" if name == "weights" else f"--{name} writes"
        )
        if other := occupied.get(os.path.realpath(path)):
            raise console.CommandError(
                f"--{name} would write {path}, which is {other}; choose another name"
            )
        occupied[os.path.realpath(path)] = f"what --{name} writes"
    if options.code and options.script:
        _check_importable(options.code, options.script)
    if options.onnx:
        if missing := onnx_missing():
            raise console.CommandError(missing)


def _check_importable(code: Path, script: Path) -> None:
    """Refuse a file of the class that the script could not import. Raises CommandError."""

    if not code.stem.isidentifier() or keyword.iskeyword(code.stem):
        raise console.CommandError(
            f"{script.name} imports {code.name}, and {code.stem!r} is not an importable name; "
            "pass --code a name of letters, digits and _"
        )
    if code.parent.resolve() != script.parent.resolve():
        raise console.CommandError(
            f"{script} imports {code.name} from its own folder; write both to the same folder"
        )


def _proofs(
    options: argparse.Namespace,
    project: Project,
    analysis: Analysis,
    chosen: ExportWeights,
) -> int:
    """Export other formats and certify; return 1 on any mismatch."""

    fine = True
    files: list[tuple[Kind, Path]] = [("PT2", options.pt2), ("ONNX", options.onnx)]
    for kind, path in files:
        if path:
            fine = _format(options, kind, path, project, analysis, chosen) and fine
    if options.certify:
        fine = _certificate(options, project, analysis, chosen) and fine
    return 0 if fine else 1


def _format(
    options: argparse.Namespace,
    kind: Kind,
    path: Path,
    project: Project,
    analysis: Analysis,
    chosen: ExportWeights,
) -> bool:
    try:
        with console.writing(path), StatusLine() as tell:
            state, seed = chosen.state_dict, project.training.seed
            axes = tuple(map(parse_axis, options.dynamic))
            written = write_format(
                analysis.source, state, path, kind, seed=seed, tell=tell, open_axes=axes
            )
    except FormatError as error:
        left_open = "".join(f" --dynamic {axis}" for axis in options.dynamic)
        raise console.CommandError(
            f"{path}{left_open and f' with{left_open}'}: {error}", 1
        ) from error
    print(path)
    print(
        f"{'passed' if written.passed else 'failed'}: {console.printable(written.message)}"
    )
    if written.fixed and not options.dynamic:
        print(
            f"sizes other than the batch are fixed; --dynamic {written.fixed[0].partition(' ')[0]} leaves one open"
        )
    return written.passed


def _certificate(
    options: argparse.Namespace,
    project: Project,
    analysis: Analysis,
    chosen: ExportWeights,
) -> bool:
    with console.writing(options.code or options.project), StatusLine() as tell:
        certificate, path = certify_export(
            analysis.source,
            chosen.state_dict,
            options.code,
            options.weights,
            about=chosen.words,
            seed=project.training.seed,
            imported=drawing_digest.imported(project, analysis.source),
            tell=tell,
        )
    print(*map(console.printable, certificate.lines), sep="\n")
    if path is not None:
        print(path)
    temporary = [name for name in ("code", "weights") if getattr(options, name) is None]
    if temporary:
        flags = " and ".join(f"--{name} FILE" for name in temporary)
        verb = "keep them" if temporary[1:] else "keeps it"
        rest = ", with the certificate" if "code" in temporary else ""
        print(
            f"{' and '.join(temporary)} were in a temporary folder that has been deleted; {flags} {verb}{rest}"
        )
    return certificate.passed
