"""Compiles a model."""

from __future__ import annotations

import os

from app.engine.server import Context, handles
from app.features.compile.compute.compiling import compiled
from app.features.compile.values import Compile, Compiled


@handles(Compile)
def compile_model(request: Compile, context: Context) -> Compiled:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # discard what the model prints
    return compiled(request, context.progress)
