"""`tapedeck data`: describe a project's data, its unreadable samples, and one batch."""

from __future__ import annotations

import argparse
import json
from typing import Any

from msgspec import to_builtins

from app.cli import arguments, console
from app.data import description


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""

    data: argparse.ArgumentParser = commands.add_parser(
        "data", help="read and describe a project's data"
    )
    arguments.add_project(data)
    arguments.add(data, "--data", "--json")
    arguments.add(data, *arguments.MODEL, *arguments.SETTINGS, "--trust")
    data.set_defaults(command=run)
    return data


def run(options: argparse.Namespace) -> int:
    """Read the data; return 1 if unreadable samples block a run."""
    from app.cli import nets
    from app.data.preview import preview

    project = nets.read(options)
    training = project.training
    batch_preview = preview(
        project.data,
        options.data,
        training.batch_size,
        lambda done, total, name: None,
        training.seed,
        training.one_batch,
    )
    spec = batch_preview.spec
    if options.json:
        inputs, labels = (
            [
                batch_preview.shape,
                batch_preview.dtype,
                batch_preview.low,
                batch_preview.high,
            ],
            [batch_preview.label_shape, batch_preview.label_dtype],
        )
        batch = {"inputs": inputs, "labels": labels}
        record = {
            **to_builtins(batch_preview.info, enc_hook=dict),
            "per_class": spec.per_class,
            "bad": spec.bad,
            "batch": batch,
        }
        print(json.dumps(record, default=dict))
    else:
        lines = [
            description.facts(spec, project.data),
            description.balance(spec),
            *spec.notes,
            description.batch(batch_preview),
        ]
        for line in filter(None, lines):
            print(console.printable(line))
        for sample in spec.bad:
            print(console.printable(f"cannot be read: {sample}"))
    return int(bool(spec.bad) and project.data.bad == "stop")
