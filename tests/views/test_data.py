"""The Data section: choosing a source, a file and its columns, what is said of them, and a look at a batch."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from app.data import description
from app.data.config import DataConfig, Transform
from app.data.own_files import dataset_class
from app.data.preview import first_batch, preview
from app.data.sources import SOURCES
from app.data.transform_list import KINDS
from app.engine.client import shared
from app.project.project import Project
from app.source import layer_files
from app.source.generated import Source
from app.training.config import TrainingConfig
from app.training.job import Job
from app.training.setup.batch_order import ordered
from app.util.frozen import FrozenMap
from app.views.engine_service import EngineService
from app.views.training.form.data.columns_table import INPUT, LEFT_OUT, TARGET
from app.views.training.form.data.data_section import DataSection
from app.views.ui import theme
from app.views.ui.dialogs.message import ListingDialog
from tests.data.test_files import BAD, TABLE, pictures


@pytest.fixture
def section(qtbot: QtBot, qapp, service: EngineService) -> DataSection:
    """The section on a project that takes what is chosen."""
    theme.apply(qapp, "dark")
    made = DataSection(service)
    qtbot.addWidget(made)
    made.chosen.connect(lambda config, _words, _merge: made.show_config(config))
    made.resize(320, 900)
    made.show_config(DataConfig())
    made.show()
    return made


def settled(qtbot: QtBot, section: DataSection) -> None:
    qtbot.waitUntil(lambda: not section.reader.busy)


def file(folder: Path, text: str = TABLE) -> str:
    (folder / "t.csv").write_text(text)
    return str(folder / "t.csv")


def test_a_table_is_read_once_it_is_chosen(qtbot, section, tmp_path, monkeypatch):
    section.source.set_value("file.csv")
    section.source.edited.emit("file.csv")
    assert (
        section.pick.isVisible()
        and section.pick.text() == "Choose a file…"
        and not section.show_batch.isVisible()
    )
    monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *_: (file(tmp_path), ""))
    with qtbot.waitSignal(section.facts_changed):
        qtbot.mouseClick(section.pick, Qt.MouseButton.LeftButton)
    settled(qtbot, section)
    assert (
        "60 samples of 4 float32, 2 classes. 48 for training, 12 for validation."
        in section.state.text()
    )
    assert "name is ignored: it has 60 different texts." in section.state.text()
    assert section.balance.text() == "Samples per class: cat: 45, dog: 15."
    roles = {name: field.value() for name, field in section.columns.roles.items()}
    assert roles == {
        "length": INPUT,
        "kind": INPUT,
        "name": LEFT_OUT,
        "species": TARGET,
    }
    said = section.batch_words.text()
    assert said.startswith(
        "The first batch of a run, shuffled: inputs 48×4 float32, standardised, "
    )
    assert section.batch.preview.rows[0] == ("length", "kind")


def test_the_first_rows_of_a_table_are_shown_as_in_the_file(qtbot, section, tmp_path):
    rows = "".join(
        f"{1900 + number},{number % 3 + 0.5},{250_000 + 1_000 * number}\n"
        for number in range(40)
    )
    section.show_config(
        DataConfig(
            "file.csv",
            path=file(tmp_path, f"built,rooms,price\n{rows}"),
            shuffle=False,
            split_seed=1,
            options=FrozenMap(standardise_target=True),
        )
    )
    settled(qtbot, section)
    shown = section.batch.preview
    assert shown.rows[0] == ("built", "rooms") and shown.spec.target_name == "price"
    assert all(
        price == f"{250 + int(built) - 1900},000"
        for (built, _), price in zip(shown.rows[1:], shown.captions, strict=True)
    )


def test_long_names_of_columns_make_the_section_no_wider(qtbot, section, tmp_path):
    def needed(name: str) -> int:
        section.show_config(
            DataConfig(
                "file.csv", path=file(tmp_path, f"{name},kind,y\n1,a,2\n3,b,4\n5,a,6\n")
            )
        )
        settled(qtbot, section)
        qtbot.waitUntil(
            lambda: (
                section.columns.isVisible()
                and section.columns.minimumSizeHint().width() > 0
            )
        )
        return section.columns.minimumSizeHint().width()

    assert needed("length") == needed("length_of_the_northern_edge_in_metres")


def test_the_target_goes_from_one_column_to_another(qtbot, section, tmp_path):
    section.show_config(DataConfig("file.csv", path=file(tmp_path)))
    settled(qtbot, section)
    section.columns.roles["length"].set_value(TARGET)
    with qtbot.waitSignal(section.chosen) as chosen:
        section.columns.roles["length"].edited.emit(TARGET)
    assert dict(chosen.args[0].options) == {
        "inputs": ("kind", "species"),
        "target": "length",
    }
    settled(qtbot, section)
    assert (
        "1 value to predict" in section.state.text() and not section.balance.isVisible()
    )
    read_as = {name: kind.itemText(0) for name, kind in section.columns.kinds.items()}
    assert read_as == {
        "length": "auto: number",
        "kind": "auto: 3 kinds",
        "name": "auto",
        "species": "auto: 2 kinds",
    }


def test_the_arrays_that_were_taken_stand_in_the_empty_fields(qtbot, section, tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((6, 7), np.float32), y=np.arange(6) % 2)
    section.show_config(DataConfig("file.tensors", path=str(tmp_path / "a.npz")))
    settled(qtbot, section)
    fields = [
        section.options.editor(name).field.placeholderText()
        for name in ("inputs", "labels")
    ]
    assert fields == ["x", "y"] and section.batch.preview.rows[0] == (
        "0",
        "1",
        "2",
        "3",
        "…",
    )


def test_bad_rows_are_told_and_what_comes_of_them(qtbot, section, tmp_path):
    section.show_config(DataConfig("file.csv", path=file(tmp_path, BAD)))
    settled(qtbot, section)
    assert (
        "4 samples cannot be read and are blocking the run: row 3: 2 fields instead of 3"
        in section.state.text()
    )
    qtbot.mouseClick(section.all_bad, Qt.MouseButton.LeftButton)
    dialog = section.window().findChild(ListingDialog)
    assert (
        dialog.lines.toPlainText().splitlines()[-1] == "row 7, b: 'x' is not a number"
    )
    dialog.accept()
    section.bad.edited.emit("bad", "skip", None)
    assert "are skipped: row 3" in section.state.text()


def test_a_file_that_cannot_be_used_says_why(qtbot, section, tmp_path):
    section.show_config(DataConfig("file.csv", path=file(tmp_path, "a\n1\n")))
    settled(qtbot, section)
    assert (
        "has one column" in section.state.text() and not section.show_batch.isVisible()
    )
    section.show_config(DataConfig("file.csv", path=str(tmp_path / "gone.csv")))
    settled(qtbot, section)
    assert "gone.csv does not exist" in section.state.text()


def test_pictures_are_shown_with_their_classes(qtbot, section, tmp_path):
    section.show_config(pictures(tmp_path))
    settled(qtbot, section)
    preview = section.batch.preview
    assert len(preview.pictures) == 16 and set(preview.captions) == {"cats", "dogs"}, (
        "not the first files alone"
    )
    assert not section.batch.grab().isNull()
    assert section.batch.accessibleName().startswith("Images of the first batch: ")
    assert "19×3×6×5 float32, from 0 to 1" in section.batch_words.text()


def test_an_option_that_cannot_be_is_refused_at_its_field(section):
    section.show_config(DataConfig("made.moons"))
    section.options.edited.emit("noise", -1.0, None)
    assert "noise" not in section._config.options
    section.options.edited.emit("noise", 0.3, None)
    assert section._config.options == FrozenMap(noise=0.3)
    section.options.edited.emit("noise", 0.1, None)
    assert section._config.options == FrozenMap(), "what is the default is left out"


def test_other_data_take_no_options_along(section):
    section.show_config(DataConfig("made.moons", options=FrozenMap(noise=0.3)))
    section.source.edited.emit("sklearn.iris")
    assert (
        section._config == DataConfig("sklearn.iris")
        and "Balanced: 50 per class." == section.balance.text()
    )


def test_the_parts_are_counted_as_they_will_be():
    config = DataConfig("sklearn.wine", 0.25, test_fraction=0.1)
    assert description.parts(SOURCES["sklearn.wine"], config) == (115, 45, 18)
    mnist = replace(config, source="torchvision.MNIST")
    assert description.parts(SOURCES["torchvision.MNIST"], mnist) == (
        60_000,
        9_000,
        1_000,
    )


@pytest.mark.parametrize("name", KINDS)
def test_every_transform_has_a_form_with_a_hint_for_each_parameter(section, name):
    section.training_transforms.put(name)
    (item,) = section.training_transforms.items
    rows = item.form.rows if item.form is not None else {}
    assert [*rows] == [option.name for option in KINDS[name].options]
    assert all("xpects" in row.name.toolTip() for row in rows.values())


def test_transforms_are_added_moved_and_removed_with_pictures_before_and_after(
    qtbot, section
):
    section.training_transforms.put("RandomRotation")
    section.training_transforms.put("Normalize")
    names = [one.name for one in section._config.train_transforms]
    assert names == ["RandomRotation", "Normalize"]
    assert [one.name for one in section._config.eval_transforms] == ["Normalize"], (
        "what does not draw goes into both"
    )
    section.training_transforms.items[1].raised.emit()
    assert [one.name for one in section._config.train_transforms] == [
        "Normalize",
        "RandomRotation",
    ]
    section.training_transforms.items[1].form.edited.emit("degrees", 45, None)
    assert section._config.train_transforms[1].params == FrozenMap(degrees=45.0)
    section.read_data()
    settled(qtbot, section)
    preview = section.batch.preview
    assert len(preview.before) == len(preview.pictures) == 16 and preview.low == -1
    assert (
        not section.batch.grab().isNull()
        and "Above: before the transforms." in section.batch_words.text()
    )
    section.training_transforms.items[0].removed.emit()
    assert [one.name for one in section._config.train_transforms] == ["RandomRotation"]
    assert section._config.eval_transforms == (), "as it was added to both"


def test_resize_begins_at_the_size_of_the_net_and_is_set_in_both_lists_at_once(section):
    section.net_size = (28, 28)
    section.show_config(section._config)
    section.training_transforms.put("Resize")
    config = section._config
    assert (
        config.train_transforms
        == config.eval_transforms
        == (Transform("Resize", FrozenMap(size=(28, 28))),)
    )
    section.training_transforms.items[0].form.edited.emit("size", (16, 16), None)
    config = section._config
    assert (
        config.train_transforms
        == config.eval_transforms
        == (Transform("Resize", FrozenMap(size=(16, 16))),)
    )
    section.eval_transforms.items[0].form.edited.emit("size", (14, 14), None)
    section.training_transforms.items[0].form.edited.emit("size", (15, 15), None)
    assert section._config.eval_transforms[0].params == FrozenMap(size=(14, 14)), (
        "what differs is left alone"
    )


@pytest.mark.parametrize(
    "training",
    [TrainingConfig(seed=3), TrainingConfig(one_batch=True), TrainingConfig()],
)
def test_the_batch_that_is_shown_is_the_one_that_training_sees_first(training):
    config = DataConfig(shuffle=training.seed == 3 or training.one_batch)
    job = Job(Source(""), config, training)
    ours = first_batch(
        1438,
        training.batch_size,
        config.shuffle and not training.one_batch,
        training.seed,
    )
    assert torch.equal(
        ours, ordered(job, 1438, torch.Generator().manual_seed(training.seed))[0]
    )


def test_another_seed_shows_another_batch(qtbot, section):
    section.set_training(TrainingConfig())
    section.read_data()
    settled(qtbot, section)
    first = section.batch.preview.captions
    section.set_training(TrainingConfig(seed=1))
    settled(qtbot, section)
    assert (
        section.batch.preview.captions != first
        and "shuffled" in section.batch_words.text()
    )
    section.training_transforms.put("Resize")
    assert section._config.train_transforms[-1].params == FrozenMap(size=(8, 8)), (
        "as large as the pictures are"
    )


def test_tables_are_offered_no_transforms(section):
    section.show_config(DataConfig("sklearn.iris"))
    assert (
        not section.training_transforms.isVisible()
        and not section.eval_transforms.isVisible()
    )


OWN = """\
import torch
from torch.utils.data import TensorDataset


class Own(TensorDataset):
    def __init__(self):
        super().__init__(torch.rand(30, 3), torch.arange(30) % 3)
"""


def test_a_dataset_class_waits_until_its_file_is_trusted(qtbot, section, tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN)
    section.show_config(DataConfig("file.dataset", path=str(path)))
    assert (
        "not trusted yet" in section.state.text()
        and not section.reader.busy
        and not section.show_batch.isVisible()
    )
    with qtbot.waitSignal(section.trust_requested) as asked:
        qtbot.mouseClick(section.trust, Qt.MouseButton.LeftButton)
    assert asked.args == [str(path)]
    layer_files.allow(dataset_class.file_of(path).sha256, tried=True)
    section.show_config(section._config)
    settled(qtbot, section)
    assert (
        "30 samples of 3 float32, 3 classes" in section.state.text()
        and not section.trust.isVisible()
    )


TWO = """\
from torch.utils import data as sets

raise SystemExit("nothing of this runs")


class First(sets.Dataset):
    pass


class Helper:
    pass


if True:

    class Second(First):
        pass
"""


def test_the_classes_of_a_file_are_chosen_from_a_menu_before_any_of_it_runs(
    qtbot, section, tmp_path
):
    (tmp_path / "two.py").write_text(TWO)
    with qtbot.waitSignal(section.chosen) as chosen:
        section.show_config(DataConfig("file.dataset", path=str(tmp_path / "two.py")))
        editor = section.options.editor("dataset")
        qtbot.waitUntil(lambda: editor.choose is not None and editor.choose.isVisible())
        qtbot.keyClick(editor.choose, Qt.Key.Key_Space)
        assert [each.text() for each in editor.menu.actions()] == ["First", "Second"]
        qtbot.keyClick(editor.menu, Qt.Key.Key_Down)
        qtbot.keyClick(editor.menu, Qt.Key.Key_Down)
        qtbot.keyClick(editor.menu, Qt.Key.Key_Return)
    config = chosen.args[0]
    assert config.options["dataset"] == "Second"
    section.show_config(config)
    assert editor.field.text() == "Second" and not editor.field.isReadOnly()
    (tmp_path / "own.py").write_text(OWN)
    section.show_config(DataConfig("file.dataset", path=str(tmp_path / "own.py")))
    qtbot.waitUntil(lambda: editor.field.placeholderText() == "Own")


SLOW = """\
import time
from pathlib import Path

import torch
from torch.utils.data import Dataset


class Slow(Dataset):
    def __len__(self):
        return 30

    def __getitem__(self, number):
        Path("{folder}/begun").touch()
        while number > 3 and not Path("{folder}/gate").exists():
            time.sleep(0.01)
        return torch.full((3,), float(number)), number % 3
"""


@pytest.fixture
def slow(tmp_path: Path) -> DataConfig:
    """Data that are read once there is a file “gate” in the folder, and put a file “begun” there."""
    (tmp_path / "slow.py").write_text(SLOW.format(folder=tmp_path))
    layer_files.allow(dataset_class.file_of(tmp_path / "slow.py").sha256, tried=True)
    return DataConfig("file.dataset", path=str(tmp_path / "slow.py"))


def begun(qtbot: QtBot, folder: Path) -> None:
    qtbot.waitUntil((folder / "begun").exists)
    (folder / "begun").unlink()


def test_a_reading_is_stopped_and_begun_again(qtbot, section, slow, tmp_path):
    section.show_config(slow)
    begun(qtbot, tmp_path)
    qtbot.mouseClick(section.stop, Qt.MouseButton.LeftButton)
    assert section.state.text() == "Reading was stopped. Show a batch to restart it."
    assert not section.bar.isVisible()
    (tmp_path / "gate").touch()
    qtbot.mouseClick(section.show_batch, Qt.MouseButton.LeftButton)
    settled(qtbot, section)
    assert (
        "30 samples of 3 float32, 3 classes" in section.state.text()
        and section.batch.isVisible()
    )


def test_an_engine_that_ends_while_it_reads_is_said_and_the_next_reads(
    qtbot, section, slow, tmp_path
):
    section.show_config(slow)
    begun(qtbot, tmp_path)
    os.kill(shared().pid, signal.SIGKILL)
    settled(qtbot, section)
    assert "SIGKILL" in section.state.text() and section.state.text().count(".") == 1
    (tmp_path / "gate").touch()
    qtbot.mouseClick(section.show_batch, Qt.MouseButton.LeftButton)
    settled(qtbot, section)
    assert "30 samples of 3 float32, 3 classes" in section.state.text()


def test_what_the_engine_shows_is_what_is_read_here(qtbot, section, tmp_path):
    config = pictures(tmp_path)
    section.show_config(config)
    settled(qtbot, section)
    there, here = (
        section.batch.preview,
        preview(config, None, TrainingConfig().batch_size, lambda *_: None),
    )
    assert (there.spec, there.info, there.shape, there.captions) == (
        here.spec,
        here.info,
        here.shape,
        here.captions,
    )
    assert (there.low, there.high) == (here.low, here.high)
    assert all(map(np.array_equal, there.pictures, here.pictures))


def test_net_and_data_stand_side_by_side_with_a_cure(qtbot, section):
    from app.builder.analysis import analyse
    from app.preflight import preflight
    from tests.support.builder_nets import net

    graph = net(
        [
            ("input", "x", {"shape": (1, 9, 9)}),
            ("nn.Flatten", "flatten", {}),
            ("nn.Linear", "fc", {"out_features": 7}),
            ("output", "y", {}),
        ]
    )
    section.fit.show_fit(preflight.fit(Project(graph=graph), analyse(graph)))
    assert (
        section.fit.data.text()
        == "N×1×8×8 float32, and the loss expects N×10: one value per class."
    )
    assert section.fit.net.text() == "N×1×9×9 float32, and it returns N×7."
    labels = [
        "Set shape to 1×8×8",
        "Set out_features=10",
        "Replace Handwritten digits (scikit-learn) by random noise",
    ]
    buttons = section.fit.buttons
    assert [button.accessibleName() for button in buttons] == labels
    with qtbot.waitSignal(section.fit.cure_requested) as asked:
        qtbot.mouseClick(buttons[0], Qt.MouseButton.LeftButton)
    assert asked.args[0].label == "Set shape to 1×8×8"
    section.fit.show_fit(None)
    assert not section.fit.isVisible()
