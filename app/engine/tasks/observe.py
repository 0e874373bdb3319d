"""Handler of `app.engine.requests.observe`."""

from __future__ import annotations

import os
from collections.abc import Callable

from app.engine.requests.observe import Observe
from app.engine.server import Context, handles
from app.observe.observation import Observation


@handles(Observe)
def observe_model(request: Observe, context: Context) -> Observation:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # discard what the model prints
    if request.folder:
        os.chdir(request.folder)  # relative paths in the model's code are relative to it
    return answer(request, context.progress)


def answer(request: Observe, tell: Callable[[str], None] = lambda _words: None) -> Observation:
    """Make and observe a model in this process. Raises SourceError."""
    from app.observe.observe import observe
    from app.sources.loading import load

    tell(f"Making {request.source}")
    loaded = load(request.source, request.arguments, request.inputs, request.meta, request.folder)
    tell(f"Running {request.source} once")
    found = observe(loaded.model, loaded.args, loaded.kwargs, train=request.train, name=type(loaded.model).__name__)
    if found.failed is not None and request.meta:
        return observe_with_values(request, found, tell)
    return found


def observe_with_values(request: Observe, without: Observation, tell: Callable[[str], None]) -> Observation:
    """Observe again with weights where a model without values raised: control flow on values needs them."""
    from dataclasses import replace

    from app.sources.loading import LARGEST, load
    from app.sources.spec import SourceError

    with_weights = replace(request, meta=False)
    held = load(request.source, request.arguments, request.inputs, True, request.folder).model
    if sum(one.numel() * one.element_size() for one in (*held.parameters(), *held.buffers())) > LARGEST:
        return without
    try:
        return answer(with_weights, tell)
    except SourceError:
        return without
