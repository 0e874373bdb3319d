"""Files of weights are read, kept and written by an engine as by a direct call, and whole or not at all."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import pytest
import torch

from app.engine.client import Engine
from app.engine.protocol import EngineDiedError
from app.engine.requests.capture import (
    InitialWeights,
    NewestWeights,
    WeightsFile,
)
from app.engine.requests.measure import Measure
from app.export.errors import WeightsError
from app.export.weights import save_pt, save_safetensors
from app.features.weights.values import (
    CountStart,
    KeepWeights,
    ReadWeights,
    SaveWeights,
)
from app.project.weights import start_weights, state_dicts
from app.project.weights.state_dict_diff import diff, suggestions
from app.source.compiled import make_module
from app.training.setup.initial_weights import initial_weights
from app.training.setup.weights_header import read_header
from app.util.frozen import FrozenMap
from tests.support.engines import asked, stop
from tests.support.training_jobs import SMALL_NET

PATIENCE = 300.0


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.close()


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """A state_dict of the net under other names, in a checkpoint."""
    torch.manual_seed(5)
    state = {
        f"backbone.{key}": value
        for key, value in make_module(SMALL_NET).state_dict().items()
    }
    torch.save({"epoch": 3, "state_dict": state}, tmp_path / "w.pt")
    return tmp_path / "w.pt"


def test_a_file_beside_a_net_is_what_a_direct_call_finds(
    engine: Engine, given: Path
) -> None:
    said: list[str] = []
    beside = engine.ask(ReadWeights(given, SMALL_NET), said.append).result(PATIENCE)
    state, ours = state_dicts.read(given), state_dicts.net_infos(SMALL_NET)
    assert (beside.infos, beside.notes, beside.ours) == (state.infos, state.notes, ours)
    assert beside.offers == suggestions(state.infos, ours) and beside.offers
    assert said[0].startswith("Reading w.pt") and said[-1].startswith("Comparing")
    assert engine.ask(ReadWeights(given, None)).result(PATIENCE).ours is None


def test_what_is_kept_has_the_bytes_of_a_direct_call(
    engine: Engine, given: Path
) -> None:
    state, ours = state_dicts.read(given), state_dicts.net_infos(SMALL_NET)
    names = suggestions(state.infos, ours)[0].names
    keys = tuple(ours)[1:]
    kept = engine.ask(KeepWeights(given, SMALL_NET, keys, FrozenMap(names))).result(
        PATIENCE
    )
    here = start_weights.chosen(state, diff(state.infos, ours, names), keys)
    assert (kept.sha256, kept.name) == (
        here.sha256,
        here.name,
    ) and start_weights.problems(kept, SMALL_NET) == ()
    assert engine.ask(CountStart(kept, SMALL_NET)).result(PATIENCE) == (
        len(keys),
        len(ours),
    )


def test_a_file_that_was_replaced_meanwhile_is_not_kept(
    engine: Engine, given: Path
) -> None:
    torch.save({"other": torch.ones(2)}, given)
    with pytest.raises(WeightsError, match="cannot be loaded"):
        engine.ask(
            KeepWeights(given, SMALL_NET, tuple(state_dicts.net_infos(SMALL_NET)))
        ).result(PATIENCE)


def test_nothing_in_a_hostile_file_runs_in_the_engine(
    engine: Engine, tmp_path: Path
) -> None:
    canary, path = tmp_path / "ran", tmp_path / "bad.pt"

    class Canary:
        def __reduce__(self):
            return os.system, (f"touch {canary}",)

    torch.save({"weight": Canary()}, path)
    with pytest.raises(WeightsError, match="none of it was run|nothing was executed"):
        engine.ask(ReadWeights(path, SMALL_NET)).result(PATIENCE)
    assert not canary.exists()


@pytest.mark.parametrize(
    ("name", "save"), [("w.pt", save_pt), ("w.safetensors", save_safetensors)]
)
def test_what_is_written_has_the_bytes_of_a_direct_call(
    engine: Engine, tmp_path: Path, name, save
) -> None:
    there, here, left = tmp_path / name, tmp_path / f"here-{name}", tmp_path / "run.pt"
    initial = initial_weights(SMALL_NET, 7)
    for weights in (InitialWeights(), NewestWeights(str(tmp_path / "none"))):
        words = engine.ask(SaveWeights(there, SMALL_NET, 7, None, weights)).result(
            PATIENCE
        )
        save(initial, here)
        assert there.read_bytes() == here.read_bytes() and "seed 7" in words
    learnt = {key: value + 1 for key, value in initial.items()}
    torch.save(learnt, left)
    choice = WeightsFile(str(left), "of Run 1 at step 2", False)
    assert (
        engine.ask(SaveWeights(there, SMALL_NET, 7, None, choice)).result(PATIENCE)
        == "of Run 1 at step 2"
    )
    save(learnt, here)
    assert there.read_bytes() == here.read_bytes()


def test_an_engine_killed_while_it_keeps_weights_leaves_nothing_and_the_next_answers(
    engine: Engine, tmp_path: Path
) -> None:
    path, state = tmp_path / "w.safetensors", dict(make_module(SMALL_NET).state_dict())
    save_safetensors({**state, "ballast": torch.zeros(1 << 26)}, path)
    pid = engine.ask(Measure()).result(PATIENCE).pid
    stop(pid)  # so that none of it is done before the process ends
    question = engine.ask(KeepWeights(path, SMALL_NET, tuple(state)))
    while not asked(engine, KeepWeights):
        pass
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(EngineDiedError, match="SIGKILL") as caught:
        question.result(PATIENCE)
    assert str(caught.value).count(".") == 1

    def kill(words: str) -> None:
        if words.startswith("Reading"):
            os.kill(engine.pid, signal.SIGKILL)

    with pytest.raises(EngineDiedError):
        engine.ask(KeepWeights(path, SMALL_NET, tuple(state)), kill).result(PATIENCE)
    kept = engine.ask(KeepWeights(path, SMALL_NET, tuple(state))).result(PATIENCE)
    assert read_header(Path(kept.path)).keys() == state.keys()
    assert all(
        read_header(file) for file in Path(kept.path).parent.iterdir()
    )  # none is cut off


def test_a_question_that_is_cancelled_writes_nothing_that_is_not_whole(
    engine: Engine, tmp_path: Path
) -> None:
    question = engine.ask(
        SaveWeights(tmp_path / "w.pt", SMALL_NET, 7, None, InitialWeights())
    )
    question.stop()
    with pytest.raises(CancelledError):
        question.result(PATIENCE)
    engine.ask(
        CountStart(engine.ask(_kept(engine, tmp_path)).result(PATIENCE), SMALL_NET)
    ).result(PATIENCE)
    assert [
        file.name
        for file in tmp_path.iterdir()
        if file.name not in ("w.pt", "k.safetensors")
    ] == []


def _kept(engine: Engine, folder: Path) -> KeepWeights:
    state = dict(make_module(SMALL_NET).state_dict())
    save_safetensors(state, folder / "k.safetensors")
    return KeepWeights(folder / "k.safetensors", SMALL_NET, tuple(state))


def test_a_file_whose_name_is_not_utf_8_is_asked_about_and_named_in_the_error(
    engine: Engine,
) -> None:
    path = Path(os.fsdecode(b"/nowhere/\xff\xfe.pt"))
    with pytest.raises(WeightsError) as caught:
        engine.ask(ReadWeights(path, None)).result(PATIENCE)
    assert str(path) in str(caught.value)
    assert engine.ask(Measure()).result(PATIENCE).kept == 0
