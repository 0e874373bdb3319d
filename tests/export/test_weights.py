"""Weights go to the disk and come back as they were; a file is whole or absent."""

import pickle

import pytest

from app.export.errors import WeightsError
from app.export.text_files import write_text
from app.export.weights import save_pt, save_safetensors
from app.project.weights import state_dicts
from app.util import atomic


def state():
    import torch

    shared = torch.randn(3, 4)
    return {
        "a.weight": shared,
        "b.weight": shared,
        "c.part": shared[1],
        "d.turned": shared.t(),
        "e.count": torch.tensor(7),
        "f.empty": torch.zeros(0, 2),
        "g.also_empty": torch.zeros(0, 3),
        "h.half": torch.randn(2).to(torch.bfloat16),
    }


@pytest.mark.parametrize(
    ("save", "name"), [(save_safetensors, "w.safetensors"), (save_pt, "w.pt")]
)
def test_weights_come_back_bit_for_bit(save, name, tmp_path):
    import torch

    before = state()
    save(before, tmp_path / name)
    after = state_dicts.read(tmp_path / name).tensors
    assert set(after) == set(before)
    for key, value in before.items():
        assert after[key].dtype == value.dtype and torch.equal(after[key], value)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
def test_what_is_no_weights_is_refused_and_never_run(name, tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    (tmp_path / name).write_bytes(pickle.dumps(Evil(), protocol=2))
    with pytest.raises(
        WeightsError, match="nothing was executed|none of it was run|damaged"
    ):
        state_dicts.read(tmp_path / name)
    assert not (tmp_path / "ran").exists()


def test_a_pt_file_that_holds_something_else_says_so(tmp_path):
    import torch

    torch.save([1, 2], tmp_path / "w.pt")
    with pytest.raises(WeightsError, match="not a state_dict"):
        state_dicts.read(tmp_path / "w.pt")


def test_a_file_that_is_absent_says_so(tmp_path):
    with pytest.raises(WeightsError, match="cannot be read"):
        state_dicts.read(tmp_path / "absent.pt")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "model.py"
    write_text(path, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(WeightsError, match="No space left on device"):
        write_text(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_absent_says_so(tmp_path):
    with pytest.raises(WeightsError, match="cannot be written"):
        write_text(tmp_path / "absent" / "model.py", "text")
