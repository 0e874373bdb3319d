"""URLs and checksums of downloadable datasets, read from torchvision."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from app.data.archives import COLLECTIONS, Addresses, Collection
from app.data.sources import SOURCES, DataError
from app.util.torchvision_import import import_torchvision


def addresses(source: str) -> Addresses:
    """Look up the archives of a source. Raises DataError for one that needs no download, ImportError without
    torchvision.
    """
    if source not in COLLECTIONS:
        raise DataError(f"{SOURCES[source].label} needs no download.")
    collection = COLLECTIONS[source]
    return addressed(
        collection, getattr(import_torchvision("datasets"), collection.cls)
    )


def addressed(collection: Collection, dataset: Any) -> Addresses:
    """Return checksums and mirrors of a collection from its torchvision.datasets class."""
    archives = collection.archives
    if hasattr(dataset, "mirrors"):
        sums = dict(dataset.resources)
        return Addresses(
            tuple(replace(archive, md5=sums[archive.name]) for archive in archives),
            tuple(dataset.mirrors),
        )
    if hasattr(dataset, "split_list"):
        parts = {name: (url, md5) for url, name, md5 in dataset.split_list.values()}
        checked_archives = tuple(
            replace(archive, md5=parts[archive.name][1]) for archive in archives
        )
        return Addresses(
            checked_archives,
            (parts[archives[0].name][0].removesuffix(archives[0].name),),
        )
    (only,) = archives
    return Addresses(
        (replace(only, md5=dataset.tgz_md5),), (dataset.url.removesuffix(only.name),)
    )
