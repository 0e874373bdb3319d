"""What the commands share: the net, its weights, and the samples that it is interpreted on."""

from __future__ import annotations

import argparse

from app.cli import arguments

INTERPRETED = """
SOURCE is a project, or any model: FILE.py:Class, package.module:Class, package.module:factory(), torchvision:resnet18,
timm:NAME, hf:NAME_OR_FOLDER, diffusers:Class. A project runs on samples of its data with the newest
weights of its runs, a model on its example inputs (--input) with its initial weights, or with --on DATA on samples of
data.
Your own files run once they are trusted, by --trust or in the window, until one of them changes.
"""


def add_to(parser: argparse.ArgumentParser, several: bool) -> None:
    """Add the arguments that choose net, weights and samples."""
    arguments.add_project(parser)
    if several:
        parser.add_argument(
            "--sample",
            action="append",
            type=int,
            default=[],
            metavar="N",
            help="number of a sample, from 0; may be repeated (0)",
        )
        parser.add_argument(
            "--worst",
            type=arguments.positive,
            metavar="N",
            help="the N samples with the largest loss, instead of --sample",
        )
    else:
        parser.add_argument(
            "--sample",
            type=int,
            default=0,
            metavar="N",
            help="number of a sample, from 0 (0)",
        )
    arguments.add_weights(parser)
    arguments.add(parser, "--device", "--data", *arguments.MODEL, *arguments.SETTINGS)
    arguments.add_first_batch(parser)
    arguments.add(parser, "--seed", "--timeout", "--json", "--trust")
