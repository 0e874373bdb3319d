"""Measure the engine's memory: see `app.engine.requests.measure`."""

from __future__ import annotations

import os

from app.engine.child_process import memory_of
from app.engine.requests.measure import Measure, Vitals
from app.engine.server import Context, handles


@handles(Measure)
def measure(_request: Measure, context: Context) -> Vitals:
    return Vitals(os.getpid(), memory_of(os.getpid()), context.count)
