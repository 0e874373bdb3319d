"""An engine writes the files of an export byte for byte as a direct call does, and keeps the weights to prove them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.engine.client import Engine
from app.engine.protocol import HandleLostError
from app.engine.requests.capture import (
    InitialWeights,
    NewestWeights,
    WeightsFile,
)
from app.engine.requests.measure import Measure
from app.features.export.task import write_export
from app.features.export.values import Export, ExportChoice, NameWeights, Prove
from app.project.project import Project
from tests.support.training_jobs import SMALL_NET, job

PATIENCE = 300.0


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.close()


def test_the_files_have_the_bytes_of_a_direct_call(
    engine: Engine, tmp_path: Path
) -> None:
    there, here = (ExportChoice(tmp_path / name, pt=True) for name in ("there", "here"))
    done = engine.ask(
        Export(there, job(SMALL_NET), Project(), InitialWeights())
    ).result(PATIENCE)
    same, rest = write_export(here, job(SMALL_NET), Project())
    assert (done.names, done.weights, rest) == (
        same.names,
        same.weights,
        None,
    ) and done.to_prove is None
    assert {file.name for file in there.folder.iterdir()} == set(there.names)
    for name in there.names:
        assert (there.folder / name).read_bytes() == (
            here.folder / name
        ).read_bytes(), name


def test_weights_that_are_to_be_proved_are_held_until_they_are_released(
    engine: Engine, tmp_path: Path
) -> None:
    choice = ExportChoice(tmp_path, safetensors=False, script=False, certify=True)
    done = engine.ask(
        Export(choice, job(SMALL_NET), Project(), InitialWeights())
    ).result(PATIENCE)
    assert done.names == ("model.py",) and done.to_prove is not None
    assert done.to_prove.names == ("the certificate",)
    assert engine.ask(Measure()).result(PATIENCE).kept == 1
    engine.release(done.to_prove.handle)
    with pytest.raises(HandleLostError):
        engine.ask(Prove(done.to_prove.handle)).result(PATIENCE)
    assert engine.ask(Measure()).result(PATIENCE).kept == 0


def test_a_folder_that_cannot_be_written_is_said_and_nothing_is_left(
    engine: Engine, tmp_path: Path
) -> None:
    (tmp_path / "f").write_text("a file")
    with pytest.raises(Exception, match="f"):
        engine.ask(
            Export(
                ExportChoice(tmp_path / "f"),
                job(SMALL_NET),
                Project(),
                InitialWeights(),
            )
        ).result(PATIENCE)
    assert [file.name for file in tmp_path.iterdir()] == ["f"]


def test_weights_are_named_without_being_read(engine: Engine, tmp_path: Path) -> None:
    gone = WeightsFile(str(tmp_path / "gone.pt"), "of Run 4 at step 9", False)
    for weights, words in (
        (gone, "of Run 4 at step 9"),
        (NewestWeights(str(tmp_path)), "seed 3"),
    ):
        assert words in engine.ask(NameWeights(SMALL_NET, 3, None, weights)).result(
            PATIENCE
        )
