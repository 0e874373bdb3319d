"""State_dicts in files: nothing of them runs, what is nested is found, a net is told key by key what does not fit."""

from __future__ import annotations

import os
import pickle
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from app.export.errors import WeightsError
from app.project.weights import start_weights, state_dicts
from app.project.weights.state_dict_diff import (
    DTYPE,
    MISSING,
    SAME,
    SHAPE,
    UNEXPECTED,
    Diff,
    diff,
    suggestions,
    table,
)
from app.project.weights.state_dicts import net_infos
from app.source.compiled import make_module
from app.training.setup.weights_header import TensorInfo, read_header
from tests.slow.odd_weights import check_weights, weight_kinds
from tests.support.training_jobs import CONV_NET, SMALL_NET


def weights(source=SMALL_NET) -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    return dict(make_module(source).state_dict())


def without(given: dict[str, torch.Tensor], *keys: str) -> dict[str, torch.Tensor]:
    return {key: value for key, value in given.items() if key not in keys}


def saved(value, path: Path) -> Path:
    torch.save(value, path)
    return path


class Canary:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", ["torch", "plain"])
def test_of_a_malicious_pickle_nothing_runs_and_what_it_asked_for_is_named(
    tmp_path, protocol
) -> None:
    canary, path = tmp_path / "ran", tmp_path / "bad.pt"
    if protocol == "torch":
        torch.save({"weight": Canary(canary)}, path)
    else:
        path.write_bytes(pickle.dumps({"weight": Canary(canary)}, protocol=2))
    with pytest.raises(
        WeightsError, match="nothing was executed|none of it was run|read safely"
    ):
        state_dicts.read(path)
    assert not canary.exists()


def test_a_whole_pickled_model_is_refused_with_what_to_save_instead(tmp_path) -> None:
    with pytest.raises(
        WeightsError,
        match=r"torch.nn.modules.linear.Linear.*torch.save\(model.state_dict\(\)",
    ):
        state_dicts.read(saved(nn.Linear(2, 2), tmp_path / "model.pt"))


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_truncated_or_empty_file_is_refused_by_name(tmp_path, suffix) -> None:
    whole, path = tmp_path / f"whole{suffix}", tmp_path / f"half{suffix}"
    torch.save(weights(), whole) if suffix == ".pt" else save_file(weights(), whole)
    for data in (
        whole.read_bytes()[:-700],
        whole.read_bytes()[:40],
        b"",
        b"\xff" * 200,
    ):
        path.write_bytes(data)
        with pytest.raises(WeightsError, match=f"half{suffix}"):
            state_dicts.read(path)


@pytest.mark.parametrize("value", [[1, 2], {"epoch": 3}, {}, torch.ones(2)])
def test_what_is_no_state_dict_is_refused(tmp_path, value) -> None:
    with pytest.raises(WeightsError, match="x.pt"):
        state_dicts.read(saved(value, tmp_path / "x.pt"))


def test_the_state_dict_of_a_checkpoint_is_found_and_said(tmp_path) -> None:
    inner = {f"module.{key}": value for key, value in weights().items()}
    state = state_dicts.read(
        saved(
            {"epoch": 3, "model_state_dict": inner, "optimizer": {}}, tmp_path / "c.pth"
        )
    )
    assert list(state.infos) == list(weights())
    assert (
        "model_state_dict" in state.notes[0]
        and "epoch" in state.notes[0]
        and "DataParallel" in state.notes[1]
    )


def test_values_that_are_not_finite_are_said(tmp_path) -> None:
    given = weights()
    key = next(iter(given))
    given[key].view(-1)[0] = float("nan")
    (note,) = state_dicts.read(saved(given, tmp_path / "w.pt")).notes
    assert note.startswith(f"Values that are NaN or infinite in {key}:")
    assert not state_dicts.read(saved(weights(), tmp_path / "sound.pt")).notes


def test_the_table_has_key_shape_dtype_and_bytes(tmp_path) -> None:
    path = tmp_path / "w.safetensors"
    save_file({"a.weight": torch.ones(3, 2), "b": torch.tensor(1)}, path)
    state = state_dicts.read(path)
    assert state.infos["a.weight"] == TensorInfo((3, 2), "float32", 24)
    assert re.search(r"a.weight +3×2 +float32 +24\n", table(state.infos))
    assert read_header(path) == state.infos  # without torch the head says the same


def torchs(
    model: nn.Module, given: dict[str, torch.Tensor]
) -> tuple[set[str], set[str], set[str]]:
    """What torch says of it: missing, unexpected, with another shape."""
    shapes = set()
    try:
        model.load_state_dict(given, strict=False)
    except RuntimeError as error:
        shapes = set(re.findall(r"size mismatch for ([\w.]+):", str(error)))
    missing, unexpected = set(), set()
    try:
        model.load_state_dict(given)
    except RuntimeError as error:
        words = str(error)
        for name, found in (("Missing", missing), ("Unexpected", unexpected)):
            if match := re.search(
                rf"{name} key\(s\) in state_dict: (.*?)\. ?\n", words + "\n"
            ):
                found |= set(re.findall(r'"([^"]+)"', match[1]))
    return missing, unexpected, shapes


def ours(found: Diff) -> tuple[set[str], set[str], set[str]]:
    return tuple(
        {row.key for row in found.rows_of(kind)}
        for kind in (MISSING, UNEXPECTED, SHAPE)
    )


def test_the_difference_is_the_one_that_torch_tells() -> None:
    whole = weights(CONV_NET)
    changes = {
        "as it is": whole,
        "less": {key: value for key, value in whole.items() if "conv1" not in key},
        "more": {**whole, "extra.weight": torch.ones(2)},
        "other": {
            **whole,
            "linear1.weight": torch.ones(3, 512),
            "linear1.bias": torch.ones(3),
        },
        "all": {
            **without(whole, "norm1.bias"),
            "conv2.bias": torch.ones(1),
            "x": torch.ones(1),
        },
    }
    for given in changes.values():
        found = diff(
            {key: TensorInfo.from_tensor(value) for key, value in given.items()},
            net_infos(CONV_NET),
        )
        assert ours(found) == torchs(make_module(CONV_NET), given)
        assert found.strict == (not any(ours(found)))


def test_another_precision_is_converted_and_another_kind_of_number_is_not() -> None:
    own = {
        key: TensorInfo.from_tensor(value) for key, value in weights(CONV_NET).items()
    }
    half = {
        key: TensorInfo.from_tensor(value.half())
        for key, value in weights(CONV_NET).items()
    }
    counts = diff(half, own).counts
    assert (
        counts[DTYPE] == len(own) - 1 and counts[SHAPE] == 1
    )  # num_batches_tracked counts in whole numbers


def test_names_of_a_net_come_without_its_memory(monkeypatch) -> None:
    made = []
    register = nn.Module.register_parameter
    monkeypatch.setattr(
        nn.Module,
        "register_parameter",
        lambda self, name, p: (made.append(p), register(self, name, p))[1],
    )
    net_infos.cache_clear()
    assert list(net_infos(CONV_NET)) == list(weights(CONV_NET))
    assert any(p is not None and p.is_meta for p in made)


def test_a_prefix_and_other_names_are_suggested_not_taken() -> None:
    own = net_infos(SMALL_NET)
    theirs = {
        f"backbone.{key}".replace("linear2", "head"): info for key, info in own.items()
    }
    assert diff(theirs, own).counts[SAME] == 0
    prefix, renamed = suggestions(theirs, own)
    assert (
        "“backbone.”" in prefix.text
        and diff(theirs, own, prefix.names).counts[SAME] == 2
    )
    assert "might be" in renamed.text and diff(theirs, own, renamed.names).strict
    wrapped = {f"net.{key}": info for key, info in own.items()}
    assert diff(own, wrapped, suggestions(own, wrapped)[0].names).strict
    assert suggestions(own, own) == ()


def test_two_layers_alike_are_not_guessed_where_one_is_missing() -> None:
    one = TensorInfo((4, 4), "float32", 64)
    assert suggestions({"x.weight": one, "y.weight": one}, {"a.weight": one}) == ()


def test_what_does_not_fit_cannot_be_taken(tmp_path) -> None:
    given = {**weights(), "linear2.weight": torch.ones(3, 16)}
    state = state_dicts.read(saved(given, tmp_path / "w.pt"))
    found = diff(state.infos, net_infos(SMALL_NET))
    assert set(state_dicts.selected_tensors(state, found)) == {
        "linear1.weight",
        "linear1.bias",
        "linear2.bias",
    }
    with pytest.raises(WeightsError, match="linear2.weight"):
        start_weights.chosen(state, found, ["linear2.weight"])


@pytest.mark.parametrize("name", list(weight_kinds()))
def test_each_form_of_a_state_dict_is_read_as_torch_reads_it_or_refused_by_its_cause(
    tmp_path, name
) -> None:
    assert check_weights(name, tmp_path).fault == ""


def test_what_a_checkpoint_holds_beside_tensors_is_not_made(tmp_path) -> None:
    canary = tmp_path / "ran"
    for beside in (Canary(canary), [Canary(canary)]):
        path = saved(
            {"state_dict": weights(), "hyper_parameters": beside}, tmp_path / "c.ckpt"
        )
        with pytest.raises(WeightsError, match="nothing was executed"):
            state_dicts.read(path)
    path = saved(
        {"state_dict": weights(), "when": Path("x"), "net": nn.Linear(2, 2)},
        tmp_path / "c.ckpt",
    )
    state = state_dicts.read(path)
    assert list(state.infos) == list(weights())
    assert (
        "torch.nn.modules.linear.Linear" in state.notes[0]
        and "nothing was made or run" in state.notes[0]
    )
    assert not canary.exists()
