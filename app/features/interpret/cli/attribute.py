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
    attributions = net.answer(request, task.attributions)
    if options.json:
        plain = [
            {
                name: value
                for name, value in common.plain(attribution).items()
                if name != "values"
            }
            for attribution in attributions
        ]
        for row in plain:
            row["sample"].pop("picture")
        print(json.dumps({"attributions": plain}, ensure_ascii=False, allow_nan=False))
    else:
        print(
            *(console.printable(line(attribution)) for attribution in attributions),
            sep="\n",
        )
    if options.out is not None:
        common.write(
            options.out,
            attributions,
            lambda: {
                f"sample_{attribution.sample.number}": attribution.values
                for attribution in attributions
            },
            lambda: pictures.of_attributions(attributions),
        )
    return int(
        options.method == INTEGRATED_GRADIENTS
        and not all(attribution.complete for attribution in attributions)
    )


def line(attribution: Attribution) -> str:
    """Describe an attribution and its completeness in one line."""
    sample = attribution.sample
    sentence = (
        f"sample {sample.number}{f', label {sample.label}' if sample.label else ''}: "
    )
    sentence += (
        f"{attribution.method} of {attribution.target} (score {attribution.score:.4g})"
    )
    if attribution.layer:
        sentence += f", at {attribution.layer}"
    if attribution.steps:
        sentence += (
            f"; the sum {attribution.total:.5g} equals the difference "
            f"{attribution.score - attribution.baseline:.5g} from the score at "
            f"{attribution.against} up to {attribution.incompleteness:.2%}, in {attribution.steps:,} steps"
        )
    return sentence + (f"; {attribution.remark}" if attribution.remark else "")
