"""`tapedeck export`: a project's code, weights and training script."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "export", help="write a project's code, weights and training script"
    )
    parser.add_argument("project", type=Path)
    parser.add_argument("--code", type=Path, help="the class as a Python file")
    parser.add_argument("--weights", type=Path, help="a state_dict, .safetensors or .pt: what a run begins with")
    parser.add_argument("--script", type=Path, help="a plain script that trains it")
    parser.set_defaults(command=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Write what was asked for and say where it is."""
    from app import cli

    if not (options.code or options.weights or options.script):
        raise cli.Refused("nothing to export; give --code FILE, --weights FILE or --script FILE")
    weights: Path | None = options.weights
    if weights and weights.suffix not in (".safetensors", ".pt"):
        raise cli.Refused(f"{weights} ends in {weights.suffix or 'nothing'}; weights are .safetensors or .pt")
    project = cli.read(options)
    analysis = cli.sound(project, alone=not options.script)
    if options.code:
        from app.export.layers import write_model

        with cli.writing(options.code):
            print(*write_model(analysis.source, options.code, [options.script] if options.script else []), sep="\n")
    if options.script:
        from app import preflight
        from app.export.script import training_script, write_start

        module = options.code.stem if options.code else "model"
        job = preflight.job(project, analysis)
        cli.write_text(options.script, training_script(job, module, options.script.name))
        print(*write_start(job, options.script), sep="\n", end="\n" if job.training.start else "")
    if weights:
        from app.export.weights_choice import weights_to_export

        chosen = weights_to_export(analysis.source, project.training.seed, start=project.training.start)
        cli.save(chosen.state_dict, weights)
        print(f"{weights}: weights {chosen.words}")
    return 0
