"""The exported class, with the user's layer files that it imports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from app.export.text_files import write_text
from app.source.generated import Source
from app.training.job import Job


def write_model(source: Source, path: Path, others: Iterable[Path] = ()) -> list[Path]:
    """Write the class and every file that it imports to the same folder; return the paths, the class first.

    `others` are further files of this export. A user's file is not rewritten in its own folder. Raises FileExistsError
    for a conflicting name, OSError.
    """
    files = list(
        _files(
            source, path.parent, {other.name.casefold() for other in (path, *others)}
        )
    )
    write_text(path, source.text)
    for target, text in files:
        if text is not None:
            write_text(target, text)
    return [path, *(target for target, _ in files)]


def write_models(job: Job, path: Path, others: Iterable[Path] = ()) -> list[Path]:
    """Write the class of the net of every stage as `write_model` does: that of the last one at `path`, earlier ones
    beside it."""
    files = [
        (path.with_name(f"{name}.py"), net) for name, net in nets_of(job, path.stem)
    ]
    beside = {*others, *(file for file, _ in files)}
    file_lists = [write_model(net, file, beside - {file}) for file, net in files]
    return list(
        dict.fromkeys(target for written in reversed(file_lists) for target in written)
    )


def nets_of(job: Job, module: str) -> list[tuple[str, Source]]:
    """Return the module that each stage's net is exported as, and the net; `module` is that of the last one."""
    names = [
        *(f"{module}_{number}" for number in range(1, len(job.stages) + 1)),
        module,
    ]
    nets = (job.source, *(stage.surgery.source for stage in job.stages))
    return list(zip(names, nets, strict=True))


def _files(
    source: Source, folder: Path, occupied: set[str]
) -> Iterator[tuple[Path, str | None]]:
    """Yield each file's target and its text, None if it is there already."""
    for file in source.files:
        target = folder / file.name
        if target.name.casefold() in occupied:
            raise FileExistsError(
                f"{target} would be both the network and the file that it imports; choose another name"
            )
        home = Path(file.path) if file.path else None
        at_home = (
            home is not None
            and home.exists()
            and target.exists()
            and target.samefile(home)
        )
        if at_home and target.read_text("utf-8-sig") != file.text:
            raise FileExistsError(
                f"{target} was edited since the run; export into another folder"
            )
        yield target, None if at_home else file.text
