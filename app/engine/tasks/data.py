"""Read data and preview a batch: see `app.engine.requests.data`."""

from __future__ import annotations

from app.data.archives import Addresses
from app.data.download_addresses import addresses
from app.data.own_files import cache, dataset_class
from app.data.preview import preview
from app.data.spec import DataError, ReadingCancelledError
from app.engine.requests.data import (
    FindAddresses,
    FindDatasetClasses,
    Read,
    ReadData,
    ReadProgress,
)
from app.engine.server import Context, handles
from app.engine.tasks.pace import Pace


@handles(ReadData)
def read_data(request: ReadData, context: Context) -> Read:
    pace = Pace()

    def watch(done: int, total: int, name: str) -> None:
        if context.cancelled():
            raise ReadingCancelledError
        if pace.due():
            context.progress(ReadProgress(done, total, name))

    try:
        batch_preview = preview(
            request.config,
            request.root,
            request.batch,
            watch,
            request.seed,
            request.one_batch,
        )
        return Read(batch_preview, None, cache.fact(request.config))
    except DataError as error:
        return Read(None, error, cache.fact(request.config))


@handles(FindAddresses)
def find_addresses(request: FindAddresses, _context: Context) -> Addresses:
    return addresses(request.source)


@handles(FindDatasetClasses)
def find_dataset_classes(
    request: FindDatasetClasses, _context: Context
) -> tuple[str, ...]:
    return dataset_class.classes_in(dataset_class.file_of(request.path).text)
