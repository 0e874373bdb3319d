"""Projects of a model's own code, without a drawing."""

from __future__ import annotations

import argparse
from pathlib import Path

from app.cli import nets
from app.preflight.opened import project_of
from app.project import custom_layers, file
from app.project.project import Project


def write(source: str, out: Path, *inputs: str) -> None:
    """Run a model once, trust its files, and write a project that names it."""
    options = argparse.Namespace(input=inputs, trust=True)
    model = nets.open_model(options, source)
    custom_layers.trust_opened(model)
    file.write(project_of(model, Project(nets.name(model))), out)
