"""Files of custom layers run in an engine, once they are trusted and no longer; whatever they do ends nobody else."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.engine.client import Engine
from app.engine.protocol import EngineDiedError
from app.engine.requests.custom_layers import RunLayerFiles
from app.engine.requests.measure import Measure
from app.source import layer_files, layer_modules
from app.source.layer_files import LayerFile, LayerFileError
from tests.support import own_layers_nets as own

pytestmark = pytest.mark.usefixtures("nothing_trusted")
PATIENCE = 90.0


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.close()


def reasons_of(engine: Engine, *texts: str) -> list[str]:
    """What is said of files with these texts, in their order."""
    files = tuple(LayerFile.from_text("mine", text) for text in texts)
    reasons = engine.ask(RunLayerFiles(files)).result(PATIENCE)
    return [reasons[file.sha256] for file in files]


def test_a_file_runs_in_the_engine_once_it_is_trusted_and_not_after(
    engine: Engine, tmp_path: Path
) -> None:
    marker = tmp_path / "pids"
    text = f"import os\nwith open({str(marker)!r}, 'a') as file:\n    print(os.getpid(), file=file)\n{own.LAYERS}"
    assert reasons_of(engine, text) == [
        "mine.py is not trusted yet, so none of its code was run"
    ]
    assert not marker.exists()
    layer_files.allow(layer_files.digest(text), tried=True)
    assert reasons_of(engine, text) == [""] == reasons_of(engine, text)
    assert marker.read_text().split() == [
        str(engine.ask(Measure()).result(PATIENCE).pid)
    ]
    assert f"tapedeck_layers_{layer_files.digest(text)[:12]}_mine" not in sys.modules, (
        "it ran there alone"
    )
    layer_files.disallow(layer_files.digest(text))
    assert "is not trusted yet" in reasons_of(engine, text)[0]


def test_what_does_not_run_is_said_as_by_a_direct_call(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process in which a file is tried has torch; here it does without, which takes seconds to be loaded."""
    texts = ("x = 1\n1 / 0\n", "import sys\nsys.exit(3)\n", "import os\nos._exit(4)\n")
    monkeypatch.setattr(
        layer_modules, "_CHILD", layer_modules._CHILD.replace("import torch\n", "")
    )
    here = []
    for text in texts:
        layer_files.allow(layer_files.digest(text))
        with pytest.raises(LayerFileError) as caught:
            layer_modules.load(LayerFile.from_text("mine", text))
        here.append(str(caught.value))
    assert len(set(here)) == 3 and reasons_of(engine, texts[0], texts[2]) == [
        here[0],
        here[2],
    ]
    assert engine.ask(Measure()).result(PATIENCE).kept == 0


def test_a_file_that_ends_the_engine_is_said_in_a_sentence_and_the_next_answers(
    engine: Engine,
) -> None:
    pid = engine.ask(Measure()).result(PATIENCE).pid
    text = f"import os, signal\nos.kill({pid}, signal.SIGKILL)\n"
    layer_files.allow(layer_files.digest(text))
    with pytest.raises(EngineDiedError, match="SIGKILL") as caught:
        reasons_of(engine, text)
    assert str(caught.value).count(".") == 1 and pid != os.getpid()
    good = "x = 2\n"
    layer_files.allow(layer_files.digest(good))
    assert reasons_of(engine, good) == [""]
