"""`tapedeck attribute`: contribution of each input value to a score, computed by captum."""

from __future__ import annotations

import argparse
import json

from app.cli import console
from app.features.interpret import task
from app.features.interpret.cli import common, pictures
from app.features.interpret.compute.attribution import captum_missing
from app.features.interpret.values import (
    INTEGRATED_GRADIENTS,
    Attribution,
    ReadAttributions,
)


def run(options: argparse.Namespace) -> int:
    """Print a line for each sample, and write the attributions; return 1 if one is incomplete."""
    samples = common.samples(options)
    if missing := captum_missing():
        raise console.CommandError(missing, 1)
    if options.out is not None:
        console.can_be_written(options.out, common.ENDINGS, "attributions can end in")
    net = common.read_source(options)
    request = ReadAttributions(
        net.net,
        samples,
        options.method,
        options.target,
        options.layer,
        options.argument,
    )
    found = net.answer(request, task.attributions)
    if options.json:
        plain = [
            {
                name: value
                for name, value in common.plain(one).items()
                if name != "values"
            }
            for one in found
        ]
        for row in plain:
            row["sample"].pop("picture")
        print(json.dumps({"attributions": plain}, ensure_ascii=False, allow_nan=False))
    else:
        print(*(console.printable(line(one)) for one in found), sep="\n")
    if options.out is not None:
        common.write(
            options.out,
            found,
            lambda: {f"sample_{one.sample.number}": one.values for one in found},
            lambda: pictures.of_attributions(found),
        )
    return int(
        options.method == INTEGRATED_GRADIENTS
        and not all(one.complete for one in found)
    )


def line(found: Attribution) -> str:
    """Describe an attribution and its completeness in one line."""
    sample = found.sample
    told = (
        f"sample {sample.number}{f', label {sample.label}' if sample.label else ''}: "
    )
    told += f"{found.method} of {found.target} (score {found.score:.4g})"
    if found.layer:
        told += f", at {found.layer}"
    if found.steps:
        told += (
            f"; the sum {found.total:.5g} equals the difference {found.score - found.baseline:.5g} from the score at "
            f"{found.against} up to {found.incompleteness:.2%}, in {found.steps:,} steps"
        )
    return told + (f"; {found.remark}" if found.remark else "")
