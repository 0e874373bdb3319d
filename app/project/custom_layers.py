"""Custom layers of a project for headless use: which files may run, and the ops with them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from app.builder.blocks import with_blocks
from app.builder.catalog.catalog import Catalog, catalog
from app.builder.catalog.custom import read_file, read_files, used_in, with_custom
from app.data.own_files import dataset_class
from app.data.spec import DataError
from app.project.project import Project
from app.source import layer_files
from app.source.layer_files import FOLDER, LayerFile
from app.source.own_files import OwnFiles
from app.source.trust import TrustStore, default_file
from app.sources import finding
from app.sources.opened import OpenedModel
from app.util import atomic


def admit(project: Project, all_of_them: bool) -> None:
    """Allow trusted files to run in this process; with `all_of_them` trust every file of the project."""
    TrustStore(default_file()).admit()
    if all_of_them:
        if project.opened is not None:
            trust_file(finding.files_of(project.opened.source, project.opened.folder))
        for layer_file in read_files(project.layer_files):
            trust_file(layer_file.file)
        if project.data.source == dataset_class.KEY and project.data.path:
            with suppress(DataError):  # reported when the data are read
                trust_file(dataset_class.file_of(Path(project.data.path)))


def trust_file(file: LayerFile | OwnFiles | None) -> None:
    """Trust a file, or the files of a model, from now on; until the end of this process if that cannot be saved."""
    if file is None:
        return
    sha256 = file.key if isinstance(file, OwnFiles) else file.sha256
    store = TrustStore(default_file())
    if not store.is_trusted(sha256):
        with suppress(OSError):
            store.trust(file)
    layer_files.allow(sha256)


def trust(project: Project, sha256: str) -> None:
    """Trust the files of a project whose text was already run to import it."""
    for layer_file in read_files(project.layer_files):
        if layer_file.file is not None and layer_file.file.sha256 == sha256:
            trust_file(layer_file.file)


def trust_opened(opened: OpenedModel) -> None:
    """Trust the file of a model whose text was already run to open it."""
    path = finding.file_of(opened.source, opened.folder) if opened.sha256 else None
    read = read_file(path).file if path is not None else None
    if read is not None and read.sha256 == opened.sha256:
        with suppress(OSError):  # if it is not saved, the user is asked again
            TrustStore(default_file()).trust(read)


def adopted(project: Project, left: Path, folder: Path) -> Project:
    """Move the layer files that an import wrote to `left` into another folder and trust them: they only import a class
    of an installed package. Raises OSError."""
    files = []
    for path in map(Path, project.layer_files):
        if (
            left.resolve() in path.resolve().parents
            and (file := read_file(path).file) is not None
        ):
            path = folder / FOLDER / file.sha256[:16] / path.name
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic.write_bytes(path, file.text.encode())
            trust_file(replace(file, path=str(path)))
        files.append(str(path))
    return replace(project, layer_files=tuple(files)) if files else project


def ops_of(project: Project) -> Catalog:
    """Torch's ops, the classes of the project's files and its blocks."""
    return with_blocks(
        with_custom(catalog(), read_files(project.layer_files)), project.blocks
    )


def waiting(project: Project) -> tuple[Path, ...]:
    """Return the files that the project uses, of layers or of its opened model, and that are not trusted yet."""
    if project.opened is not None:
        files = finding.files_of(project.opened.source, project.opened.folder)
        if files is None or layer_files.allowed(files.key):
            return ()
        return tuple(Path(file.path) for file in files.files)
    graphs = [project.graph, *(block.graph for block in project.blocks.values())]
    layers = (
        layer_file
        for layer_file in read_files(project.layer_files)
        if layer_file.file is not None and not layer_file.trusted
    )
    return tuple(
        layer.path for layer in layers if any(used_in(graph, layer) for graph in graphs)
    )
