"""The first batch of the data of a command as the example inputs of its model."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cli import arguments
from app.util.leftovers import TemporaryFolder

if TYPE_CHECKING:
    from torch import Tensor

ON = "on"  # --example on
_folders: list[TemporaryFolder] = []  # of batches, removed when this process ends


def add(parser: argparse.ArgumentParser, *names: str) -> None:
    """Declare a command whose models are called with the first batch of --on DATA, if no inputs are given; add options
    of the data that it has not yet."""
    arguments.add(parser, *names)
    parser.set_defaults(first_batch=True)


def example_of(options: argparse.Namespace) -> str:
    """Return the example inputs that a command names; of --on DATA a file of their first batch, which is announced.

    Raises CommandError for data that cannot be read.
    """
    from app import cli

    example, data = arguments.value_of(options, "--example") or "", arguments.value_of(options, "--on")
    if example == ON and data is None:
        raise cli.CommandError("--example on: name the data with --on DATA")
    fits = getattr(options, "first_batch", False) and data is not None
    if example == ON or (fits and not example and not arguments.value_of(options, "--input")):
        options.example = _written(options)
    return arguments.value_of(options, "--example") or ""


def _written(options: argparse.Namespace) -> str:
    """Write the first batch of the data to a file, print a line about it, and return its path."""
    import torch

    from app import cli
    from app.cli import opened
    from app.data.loaders import load
    from app.project import custom_layers
    from app.project.project import Project
    from app.sources.spec import BATCH
    from app.training.config import TARGET

    project = opened.with_settings(Project(), options)
    custom_layers.admit(project, options.trust)
    root = arguments.value_of(options, "--data")
    data = load(project.data, root)
    inputs, targets = data.batch(project.training.batch_size)
    batch = {"inputs": _fields(inputs, ""), "targets": _fields(targets, TARGET)}
    _folders.append(TemporaryFolder())
    path = Path(_folders[-1].name, f"first{BATCH}")
    torch.save(batch, path)
    cli.warn(f"inputs: the first batch of {options.on}, {_described(batch['inputs'])}")
    return str(path)


def _fields(values: Any, name: str) -> dict[str, Tensor]:
    """Return the tensors of a batch by name; that of an only one is `name`."""
    return dict(getattr(values, "parts", {name: values}))


def _described(fields: Mapping[str, Tensor]) -> str:
    """Describe tensors in the form of --input."""
    from app.sources.spec import InputSpec

    return ", ".join(
        str(InputSpec(tuple(one.shape), str(one.dtype).removeprefix("torch."), name)) for name, one in fields.items()
    )
