"""Read data and look at a batch of them: see `app.engine.requests.data`."""

from __future__ import annotations

from time import monotonic

from app.data.own_files import cache
from app.data.preview import preview
from app.data.spec import DataError, ReadingStopped
from app.engine.requests.data import Read, ReadData, Reading
from app.engine.server import Context, handles

OFTEN = 0.1  # seconds between two words on how far it is


@handles(ReadData)
def read_data(request: ReadData, context: Context) -> Read:
    said = 0.0

    def watch(done: int, total: int, name: str) -> None:
        nonlocal said
        if context.cancelled():
            raise ReadingStopped
        if monotonic() - said > OFTEN:
            said = monotonic()
            context.progress(Reading(done, total, name))

    try:
        found = preview(request.config, request.root, request.batch, watch)
        return Read(found, None, cache.fact(request.config))
    except DataError as error:
        return Read(None, error, cache.fact(request.config))
