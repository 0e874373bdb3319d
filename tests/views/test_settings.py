"""The Training tab, and what the program remembers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QByteArray, QPoint, Qt
from PySide6.QtWidgets import QApplication, QLineEdit
from pytestqt.qtbot import QtBot

from app.data.archives import COLLECTIONS
from app.data.config import DataConfig
from app.data.sources import DIGITS, MNIST
from app.engine.client import shared
from app.engine.requests.choices import CheckLoss, CheckOptimizer, Params
from app.project.document import Document
from app.project.project import Project
from app.training.choices import LOSSES, OPTIMIZERS
from app.training.config import Choice, TrainingConfig
from app.training.setup.device import Device
from app.util.frozen import FrozenMap
from app.util.user_folders import default_root
from app.views.engine_service import EngineService
from app.views.settings import RECENT_FILES, Settings
from app.views.training.form.settings_form import (
    ChoiceSection,
    RunSettings,
    TrainingForm,
)
from tests.support.engines import asked, stop

DEVICES = (
    Device("cuda:0", "NVIDIA H200", 139 * 2**30),
    Device("cpu", "CPU, 2 threads"),
)


@pytest.fixture
def document() -> Document:
    return Document(Project("net"))


@pytest.fixture
def form(
    qtbot: QtBot, document: Document, service: EngineService
) -> Iterator[TrainingForm]:
    view = TrainingForm(document, service)
    qtbot.addWidget(view)
    view.resize(304, 1400)
    with qtbot.waitExposed(view):
        view.show()
    yield view


def line(form: TrainingForm, where: str, name: str) -> QLineEdit:
    params = {
        "run": form.numbers,
        "data": form.data.split,
        "optimizer": form.optimizer.form,
        "loss": form.loss.form,
    }
    return next(iter(params[where].editor(name).lines()))


def into(qtbot: QtBot, field: QLineEdit, text: str) -> None:
    qtbot.mouseClick(
        field, Qt.MouseButton.LeftButton, pos=QPoint(5, field.height() // 2)
    )
    qtbot.keyClick(field, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    qtbot.keyClicks(field, text)
    qtbot.keyClick(field, Qt.Key.Key_Return)


def loaded(qtbot: QtBot, form: TrainingForm) -> None:
    """Wait for the forms that torch is asked for."""
    form.set_devices(DEVICES)
    qtbot.waitUntil(
        lambda: form.optimizer.form is not None and form.loss.form is not None
    )
    QApplication.processEvents()


def test_numbers_go_into_the_project_and_a_burst_is_one_step(
    qtbot: QtBot, form: TrainingForm, document: Document
) -> None:
    into(qtbot, line(form, "run", "epochs"), "125")
    into(qtbot, line(form, "run", "batch_size"), "32")
    assert (document.project.training.epochs, document.project.training.batch_size) == (
        125,
        32,
    )
    assert document.undo_stack.count() == 2
    document.undo_stack.undo()
    assert line(form, "run", "batch_size").text() == "64"


@pytest.mark.parametrize(
    ("where", "name", "text", "words"),
    [
        ("run", "epochs", "0", "epochs must be at least 1"),
        ("run", "seed", "-1", "seed"),
        (
            "run",
            "epochs",
            "10000001",
            "epochs must be at most 10000000",
        ),  # with which no file could be opened again
        ("data", "validation_fraction", "1.5", "validation_fraction"),
        ("data", "validation_fraction", "half", "validation_fraction expects a number"),
    ],
)
def test_a_number_that_no_run_could_use_is_refused(
    qtbot: QtBot,
    form: TrainingForm,
    document: Document,
    where: str,
    name: str,
    text: str,
    words: str,
) -> None:
    into(qtbot, line(form, where, name), text)
    params = form.numbers if where == "run" else form.data.split
    assert params.rows[name].problem.text().startswith(words)
    training, data = document.project.training, document.project.data
    assert (
        training.epochs >= 1
        and training.seed >= 0
        and 0 <= data.validation_fraction < 1
    )
    qtbot.keyClick(line(form, where, name), Qt.Key.Key_Tab)
    assert not params.rows[name].problem.text()


def test_optimizer_parameters_are_checked_by_torch(
    qtbot: QtBot, form: TrainingForm, document: Document
) -> None:
    loaded(qtbot, form)
    lr = line(form, "optimizer", "lr")
    into(qtbot, lr, "0.01")
    qtbot.waitUntil(
        lambda: (
            document.project.training.optimizer == Choice("Adam", FrozenMap(lr=0.01))
        )
    )
    assert lr.hasFocus() and lr.text() == "0.01"
    kept = document.project
    into(qtbot, lr, "-1")
    problem = form.optimizer.form.rows["lr"].problem
    qtbot.waitUntil(lambda: bool(problem.text()))
    assert "Invalid learning rate: -1.0" in problem.text()
    qtbot.keyClick(lr, Qt.Key.Key_Tab)
    assert lr.text() == "0.01" and not problem.text()
    assert document.project is kept
    into(qtbot, line(form, "optimizer", "betas"), "0.8, 0.99")
    qtbot.waitUntil(
        lambda: document.project.training.optimizer.params.get("betas") == (0.8, 0.99)
    )


def test_a_number_that_is_refused_while_it_is_left_stays_with_its_reason_until_it_was_seen(
    qtbot: QtBot, form: TrainingForm, document: Document
) -> None:
    share = line(form, "data", "validation_fraction")
    problem = form.data.split.rows["validation_fraction"].problem
    share.setFocus()
    share.selectAll()
    qtbot.keyClicks(share, "5")
    qtbot.keyClick(share, Qt.Key.Key_Tab)
    assert not share.hasFocus() and share.text() == "5" and share.invalid()
    assert (
        "below 1" in problem.text() and document.project.data.validation_fraction == 0.2
    )
    share.setFocus()
    qtbot.keyClick(share, Qt.Key.Key_Tab)
    assert share.text() == "0.2" and not share.invalid() and not problem.text()


def test_a_refused_number_is_refused_again_and_esc_restores_the_value(
    qtbot: QtBot, form: TrainingForm, document: Document
) -> None:
    loaded(qtbot, form)
    lr, problem = line(form, "optimizer", "lr"), form.optimizer.form.rows["lr"].problem
    for _ in range(2):
        into(qtbot, lr, "1e40")
        qtbot.waitUntil(lambda: "lr=1e+40 is too large for float32" in problem.text())
    qtbot.keyClick(lr, Qt.Key.Key_Escape)
    assert lr.text() == "0.001" and not lr.invalid() and not problem.text()
    assert document.project.training.optimizer == Choice("Adam", FrozenMap(lr=0.001))


def test_a_refused_choice_is_marked_where_it_was_made_until_one_is_accepted(
    qtbot: QtBot, form: TrainingForm, document: Document
) -> None:
    loaded(qtbot, form)
    rows = form.optimizer.form.rows
    for name in ("fused", "foreach"):  # faster than torch answers
        rows[name].editor.field.setFocus()
        qtbot.keyClicks(rows[name].editor.field, "T")
    qtbot.waitUntil(
        lambda: document.project.training.optimizer.params.get("fused") is True
    )
    qtbot.waitUntil(lambda: bool(rows["foreach"].problem.text()))
    assert "cannot be `True` together" in rows["foreach"].problem.text()
    assert document.project.training.optimizer.params.get("foreach") is None
    qtbot.keyClick(rows["foreach"].editor.field, Qt.Key.Key_Home)
    qtbot.waitUntil(
        lambda: not rows["foreach"].problem.text() and not rows["fused"].problem.text()
    )


def test_a_refused_text_does_not_go_into_another_project(
    qtbot: QtBot, form: TrainingForm, document: Document
) -> None:
    into(qtbot, line(form, "data", "validation_fraction"), "5")
    document.new(Project("other"))
    assert line(form, "data", "validation_fraction").text() == "0.2"
    assert not form.data.split.rows["validation_fraction"].problem.text()


def test_an_engine_that_ends_while_a_value_is_checked_is_said_and_the_next_checks(
    qtbot: QtBot, form: TrainingForm, document: Document
) -> None:
    loaded(qtbot, form)
    kept = document.project
    stop(shared().pid)  # so that the question is still open when it ends
    lr = line(form, "optimizer", "lr")
    into(qtbot, lr, "0.01")
    newest = CheckOptimizer(
        Choice("Adam", FrozenMap(lr=0.01))
    )  # each digit that was typed asked a question of its own
    qtbot.waitUntil(lambda: asked(shared(), newest))
    os.kill(shared().pid, signal.SIGKILL)
    problem = form.optimizer.form.rows["lr"].problem
    qtbot.waitUntil(lambda: "SIGKILL" in problem.text())
    assert problem.text().count(".") == 1 and document.project is kept
    into(qtbot, lr, "0.02")
    qtbot.waitUntil(
        lambda: (
            document.project.training.optimizer == Choice("Adam", FrozenMap(lr=0.02))
        )
    )
    assert not problem.text()


def test_another_optimizer_has_another_form(
    qtbot: QtBot, form: TrainingForm, document: Document
) -> None:
    loaded(qtbot, form)
    form.optimizer.name.setFocus()
    qtbot.keyClicks(form.optimizer.name, "SGD")
    assert document.project.training.optimizer == Choice("SGD")
    qtbot.waitUntil(lambda: "momentum" in form.optimizer.form.rows)
    document.undo_stack.undo()
    qtbot.waitUntil(lambda: "betas" in form.optimizer.form.rows)
    assert form.optimizer.name.value() == "Adam"


def test_a_default_is_left_out_of_the_project(
    qtbot: QtBot, form: TrainingForm, document: Document
) -> None:
    loaded(qtbot, form)
    smoothing = line(form, "loss", "label_smoothing")
    into(qtbot, smoothing, "0.1")
    qtbot.waitUntil(
        lambda: document.project.training.loss.params == FrozenMap(label_smoothing=0.1)
    )
    into(qtbot, smoothing, "0")
    qtbot.waitUntil(lambda: document.project.training.loss.params == FrozenMap())


@pytest.mark.parametrize(
    ("kind", "name"),
    [("loss", n) for n in LOSSES] + [("optimizer", n) for n in OPTIMIZERS],
)
def test_every_choice_has_a_form(
    qtbot: QtBot, service: EngineService, kind: str, name: str
) -> None:
    """One contract over all members: every parameter has an editor, and showing it is no edit."""
    from app.training import registry

    params = (
        registry.loss_params(name)
        if kind == "loss"
        else registry.optimizer_params(name)
    )
    section = ChoiceSection(kind, (name,), partial(Params, kind), CheckLoss, service)
    qtbot.addWidget(section)
    edits = []
    section.chosen.connect(lambda choice, merge: edits.append(choice))
    section.show_choice(Choice(name))
    section._make_form(name, params)
    assert set(section.form.rows) == {param.name for param in params}
    assert not any(row.problem.text() for row in section.form.rows.values())
    assert not edits


def test_data_say_what_they_are_and_whether_they_are_here(
    qtbot: QtBot, form: TrainingForm, document: Document, tmp_path: Path
) -> None:
    form.set_data_root(tmp_path)
    assert "1,797" in form.data.words.text() and not form.data.download.isVisible()
    form.data.source.setFocus()
    qtbot.keyClicks(form.data.source, "MNI")
    assert document.project.data.source == MNIST
    assert (
        form.data.download.text() == "Download 11.6 MB…"
        and form.data.download.isVisible()
    )
    assert not form.data.split.isVisible(), "its authors chose the validation samples"
    QApplication.processEvents()
    with qtbot.waitSignal(form.download_requested) as asked:
        qtbot.mouseClick(form.data.download, Qt.MouseButton.LeftButton)
    assert asked.args == [MNIST]
    (tmp_path / "MNIST" / "raw").mkdir(parents=True)
    for name in COLLECTIONS[MNIST].files:
        (tmp_path / name).touch()
    form.refresh_data()
    assert (
        not form.data.download.isVisible() and str(tmp_path) in form.data.state.text()
    )
    document.undo_stack.undo()
    assert form.data.source.value() == DIGITS


def test_devices_are_listed_and_an_absent_one_is_not_changed_unseen(
    qtbot: QtBot, form: TrainingForm, document: Document
) -> None:
    document.apply(
        "far",
        replace(
            document.project,
            training=replace(document.project.training, device="cuda:7"),
        ),
    )
    form.set_devices(DEVICES)
    texts = [form.device.itemText(i) for i in range(form.device.count())]
    assert texts[:3] == [
        "auto (cuda:0)",
        "cuda:0 · NVIDIA H200, 139 GiB",
        "cpu · CPU, 2 threads",
    ]
    assert form.device.value() == "cuda:7" and form.device.invalid()
    assert document.project.training.device == "cuda:7"
    form.device.setFocus()
    qtbot.keyClicks(form.device, "cpu")
    assert document.project.training.device == "cpu"


def test_during_a_run_it_says_what_edits_mean(form: TrainingForm) -> None:
    form.set_running(True, RunSettings("Run 1", TrainingConfig(), DataConfig()))
    assert form.running.isVisible() and "next run" in form.running.reason()
    assert form.numbers.isEnabled()
    form.set_running(False)
    assert not form.running.isVisible()


# --- What the program remembers


@pytest.fixture
def settings() -> Settings:
    return Settings("Tapedeck", "test")


def again(settings: Settings) -> Settings:
    """The settings as the next start reads them."""
    settings.sync()
    return Settings("Tapedeck", "test")


def test_everything_comes_back(settings: Settings, tmp_path: Path) -> None:
    settings.geometry, settings.state = QByteArray(b"geometry"), QByteArray(b"state")
    settings.theme, settings.reduced_motion = "light", True
    settings.data_folder = settings.export_folder = tmp_path
    back = again(settings)
    assert (back.geometry, back.state) == (
        QByteArray(b"geometry"),
        QByteArray(b"state"),
    )
    assert (back.theme, back.reduced_motion) == ("light", True)
    assert (back.data_folder, back.export_folder) == (tmp_path, tmp_path)


def test_a_first_start_has_defaults(settings: Settings) -> None:
    assert settings.geometry is None and settings.state is None
    assert settings.theme == "dark" and not settings.reduced_motion
    assert settings.recent_files == ()
    assert settings.data_folder == default_root()
    assert settings.export_folder == settings.export_folder_of(None) == Path.home()


def test_an_export_goes_beside_the_project_until_a_folder_was_chosen(
    settings: Settings, tmp_path: Path
) -> None:
    project = tmp_path / "net.tape"
    assert settings.export_folder_of(project) == tmp_path
    settings.export_folder = chosen = tmp_path / "exports"
    chosen.mkdir()
    assert settings.export_folder_of(project) == chosen


def test_other_names_have_other_settings(settings: Settings, own_folders: Path) -> None:
    settings.theme = "light"
    settings.sync()
    assert Settings("Tapedeck", "other").theme == "dark"
    assert own_folders in settings.file.parents


def test_recent_files_newest_first_without_doubles(
    settings: Settings, tmp_path: Path
) -> None:
    paths = [tmp_path / f"{i}.tape" for i in range(RECENT_FILES + 3)]
    for path in (*paths, paths[5]):
        settings.add_recent(path)
    back = again(settings).recent_files
    assert len(back) == RECENT_FILES and back[0] == paths[5] and back[1] == paths[-1]
    settings.forget_recent(paths[5])
    assert paths[5] not in settings.recent_files


def test_what_nobody_can_read_is_the_default(
    settings: Settings, tmp_path: Path
) -> None:
    settings.theme = "light"
    settings.export_folder = tmp_path / "gone"
    settings.sync()
    text = settings.file.read_text().replace("light", "purple")
    settings.file.write_text(text)
    back = again(settings)
    assert back.theme == "dark" and back.export_folder == Path.home()
    with pytest.raises(ValueError, match="dark, light, .*, system"):
        back.theme = "purple"
