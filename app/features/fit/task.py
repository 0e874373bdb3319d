"""Measures whether a step fits."""

from __future__ import annotations

from app.engine.server import Context, handles
from app.features.fit.compute.plans import fit
from app.features.fit.values import Fit, WillItFit
from app.training.events import Failed


@handles(WillItFit)
def will_it_fit(request: WillItFit, context: Context) -> Fit | Failed:
    return fit(request.job, request.memory, context.progress, context.cancelled)
