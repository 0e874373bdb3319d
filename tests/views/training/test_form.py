"""Every knob of a run in the Training tab: schedules, groups, layers chosen from the net, folding, resetting."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QApplication, QLineEdit, QWidget
from pytestqt.qtbot import QtBot

from app.builder.analysis import analyse
from app.engine.requests.choices import CheckOptimizer
from app.project import file
from app.project.document import Document
from app.project.project import Project
from app.training.choices import SCHEDULERS
from app.training.config import Choice, ParameterGroup, Schedule, TrainingConfig
from app.training.setup.device import Device
from app.util.frozen import FrozenMap
from app.util.resources import path
from app.views.engine_service import EngineService
from app.views.training.form.settings_form import RunSettings, TrainingForm
from app.views.ui import theme
from app.views.ui.pick_box import Picker
from app.views.ui.widgets import Button
from tests.support.builder_nets import net

LAYERS = (
    ("nn.Flatten", "flatten", {}),
    ("nn.Linear", "fc1", {"out_features": 16}),
    ("nn.ReLU", "relu", {}),
    ("nn.Linear", "fc2", {"out_features": 10}),
)


@pytest.fixture
def document() -> Document:
    graph = net([("input", "x", {"shape": (1, 8, 8)}), *LAYERS, ("output", "y", {})])
    return Document(Project("net", graph=graph))


@pytest.fixture
def form(
    qtbot: QtBot, document: Document, service: EngineService
) -> Iterator[TrainingForm]:
    view = TrainingForm(document, service)
    qtbot.addWidget(view)
    view.resize(304, 2400)  # no scroll bar, which would take room from the captions
    with qtbot.waitExposed(view):
        view.show()
    view.set_devices((Device("cpu", "CPU"),))
    view.set_fit(analyse(document.project.graph))
    view.set_layers(analyse(document.project.graph))
    qtbot.waitUntil(lambda: view.optimizer.form is not None)
    yield view


def line(widget: QWidget) -> QLineEdit:
    return next(iter(widget.lines()))  # type: ignore[attr-defined]


def into(qtbot: QtBot, field: QLineEdit, text: str) -> None:
    qtbot.mouseClick(
        field, Qt.MouseButton.LeftButton, pos=QPoint(5, field.height() // 2)
    )
    qtbot.keyClick(field, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    qtbot.keyClicks(field, text)
    qtbot.keyClick(field, Qt.Key.Key_Return)


def take(qtbot: QtBot, parent: QWidget, text: str) -> None:
    """Type into the list that is open and take what is left of it."""
    picker = parent.findChildren(Picker)[-1]
    qtbot.keyClicks(picker.field, text)
    qtbot.keyClick(picker.field, Qt.Key.Key_Return)


def test_the_disk_of_checkpoints_for_revisiting_is_estimated_beside_their_seconds(
    form: TrainingForm, document: Document
) -> None:
    form.checkpoints.set_parameters(1 << 18)
    assert form.checkpoints.disk.text() == ""
    document.new(
        Project(
            "other",
            graph=document.project.graph,
            training=TrainingConfig(revisit_seconds=20.0),
        )
    )
    assert form.checkpoints.disk.text().startswith(
        "Estimated: 3.00 MiB a checkpoint, one every 10 s"
    )
    form.checkpoints.set_run("Run 3", 95.0)
    assert "27.0 MiB for as long as Run 3 (1:35)" in form.checkpoints.disk.text()


def test_an_edit_during_a_run_says_beside_the_field_what_the_run_goes_on_with(
    qtbot: QtBot, form: TrainingForm, document: Document
) -> None:
    project = document.project
    form.set_running(True, RunSettings("Run 3", project.training, project.data))
    epochs, rate = form.numbers.rows["epochs"], form.optimizer.form.rows["lr"]
    assert "remark" not in epochs.__dict__
    into(qtbot, line(form.numbers.editor("epochs")), "30")
    assert epochs.remark.isVisible() and epochs.remark.text().startswith(
        "Run 3 continues with 20. "
    )
    assert "next run" in epochs.remark.text()
    into(qtbot, line(form.optimizer.form.editor("lr")), "0.1")
    qtbot.waitUntil(lambda: document.project.training.optimizer.params["lr"] == 0.1)
    assert (
        rate.remark.text()
        == "Run 3 continues with 0.001. To change it now, use the field of the run at the bottom."
    )
    document.undo_stack.undo()
    assert rate.remark.isHidden() and epochs.remark.isVisible()
    form.set_running(False)
    assert epochs.remark.isHidden()


def test_names_are_shortened_rather_than_the_form_scrolled_sideways_at_larger_text(
    qtbot: QtBot, qapp: QApplication, form: TrainingForm
) -> None:
    theme.apply(qapp, "dark")
    form.optimizer.set_open(True)
    theme.manager().set_scale(1.5)
    try:
        form.resize(360, 2400)
        inside = form.area.widget()
        qtbot.waitUntil(
            lambda: (
                inside.minimumSizeHint().width()
                <= form.area.viewport().width()
                == inside.width()
            )
        )
        names = [row.name for row in form.optimizer.form.rows.values()]
        qtbot.waitUntil(lambda: any("…" in name.text() for name in names))
        form.resize(800, 2400)
        qtbot.waitUntil(
            lambda: not any("…" in name.text() for name in names if name.wanted < 150)
        )
    finally:
        theme.manager().set_scale(1.0)


def test_fields_of_the_split_and_of_loading_begin_at_one_line(
    qtbot: QtBot, form: TrainingForm
) -> None:
    def lefts() -> set[int]:
        forms = form.data.split, form.data.loading
        editors = [row.editor for one in forms for row in one.rows.values()]
        return {
            editor.mapTo(form, QPoint(0, 0)).x()
            for editor in editors
            if editor is not None
        }

    qtbot.waitUntil(lambda: len(lefts()) == 1)


def test_every_field_of_the_config_has_its_place(form: TrainingForm) -> None:
    shown = {name for section in form.knobs for name in section.names}
    shown |= {
        "optimizer",
        "loss",
        "schedule",
        "start",
    }  # sections of their own; weights are loaded from a file
    shown |= {"metrics", "losses", "inputs"}  # chosen beside the loss and the data
    shown |= {"loss_by"}  # what chose the losses, which nobody sets
    assert shown >= set(TrainingConfig.__struct_fields__)


def test_what_differs_is_open_and_the_rest_says_itself_in_a_line(
    qtbot: QtBot, form: TrainingForm, document: Document
) -> None:
    assert not form.gradients.is_open() and form.run.is_open()
    training = TrainingConfig(accumulate=4, clip_norm=0.5)
    document.new(Project("other", graph=document.project.graph, training=training))
    assert form.gradients.is_open() and not form.regular.is_open()
    form.gradients.set_open(False)
    assert (
        form.gradients.caption()
        == form.gradients.summary
        == "accumulate 4, clip_norm 0.5"
    )
    form.gradients.set_open(True)
    qtbot.mouseClick(form.gradients._action, Qt.MouseButton.LeftButton)
    assert (
        document.project.training == TrainingConfig()
        and document.undo_stack.count() == 1
    )


@pytest.mark.parametrize(
    ("section", "name", "text", "value"),
    [
        ("run", "max_steps", "100", 100),
        ("run", "max_minutes", "2", 2.0),
        ("run", "leave_out", "33, 40", (33, 40)),
        ("run", "leave_out", "33", (33,)),
        ("gradients", "clip_norm", "1", 1.0),
        ("regular", "ema", "0.99", 0.99),
        ("checkpoints", "save_every", "50", 50),
        ("checkpoints", "revisit_seconds", "30", 30.0),
        ("speed", "threads", "1", 1),
    ],
)
def test_a_number_goes_into_the_project_as_one_step(
    qtbot: QtBot,
    form: TrainingForm,
    document: Document,
    section: str,
    name: str,
    text: str,
    value: object,
) -> None:
    part = getattr(form, section)
    part.set_open(True)
    into(qtbot, line(part.form.editor(name)), text)
    found = getattr(document.project.training, name)
    assert (
        found == value
        and type(found) is type(value)
        and document.undo_stack.count() == 1
    )
    document.undo_stack.undo()
    assert document.project.training == TrainingConfig()


def test_what_no_run_could_use_is_refused_in_words(
    qtbot: QtBot, form: TrainingForm, document: Document
) -> None:
    form.gradients.set_open(True)
    into(qtbot, line(form.gradients.form.editor("clip_norm")), "0")
    assert "above 0" in form.gradients.form.rows["clip_norm"].problem.text()
    form.regular.set_open(True)
    into(qtbot, line(form.regular.form.editor("ema")), "1.5")
    assert "between 0 and 1" in form.regular.form.rows["ema"].problem.text()
    assert (
        document.project.training.clip_norm is None
        and document.project.training.ema is None
    )


def test_amp_is_none_or_a_precision(
    qtbot: QtBot, form: TrainingForm, document: Document
) -> None:
    form.speed.set_open(True)
    field = form.speed.form.editor("amp").field
    field.setFocus()
    qtbot.keyClicks(field, "bf")
    assert (
        document.project.training.amp == "bfloat16" and form.speed.summary == "bfloat16"
    )
    qtbot.keyClick(field, Qt.Key.Key_Home)
    assert document.project.training.amp == ""


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_schedule_begins_with_values_that_torch_takes(
    qtbot: QtBot, form: TrainingForm, document: Document, name: str
) -> None:
    form.schedule.set_open(True)
    form.schedule.name.setFocus()
    qtbot.keyClicks(form.schedule.name, name)
    qtbot.waitUntil(lambda: document.project.training.schedule is not None)
    assert document.project.training.schedule.choice.name == name
    plot, words = form.schedule.plot, form.schedule.plot_words
    qtbot.waitUntil(lambda: plot.isVisible() or "validation loss" in words.text())
    assert not words.text().startswith("PyTorch") and form.schedule.fit.isHidden()
    assert document.undo_stack.count() == 1


def test_a_schedule_says_where_its_values_come_from_and_follows_the_run_on_request(
    qtbot: QtBot, form: TrainingForm, document: Document
) -> None:
    form.schedule.set_open(True)
    form.schedule.name.setFocus()
    qtbot.keyClicks(form.schedule.name, "CosineAnnealingL")
    qtbot.waitUntil(lambda: form.schedule.form is not None)
    assert form.schedule.said.text() == "T_max was set to the 20 epochs of the run."
    into(qtbot, line(form.numbers.editor("epochs")), "30")
    assert document.project.training.schedule.choice.params == FrozenMap(T_max=20)
    assert form.schedule.fit.text() == "Set T_max to the run's 30"
    qtbot.mouseClick(form.schedule.fit, Qt.MouseButton.LeftButton)
    assert document.project.training.schedule.choice.params == FrozenMap(T_max=30)
    into(qtbot, line(form.schedule.form.editor("T_max")), "0")
    problem = form.schedule.form.rows["T_max"].problem
    qtbot.waitUntil(lambda: bool(problem.text()))
    assert document.project.training.schedule.choice.params["T_max"] != 0
    qtbot.keyClick(form.schedule.name, Qt.Key.Key_Home)
    qtbot.waitUntil(lambda: document.project.training.schedule is None)


def test_a_warmup_that_a_schedule_cannot_have_is_refused_in_words(
    qtbot: QtBot, form: TrainingForm, document: Document
) -> None:
    form.schedule.set_open(True)
    schedule = Schedule(
        Choice("OneCycleLR", FrozenMap(max_lr=0.1, total_steps=460)), "step"
    )
    training = replace(document.project.training, schedule=schedule)
    document.apply("choose", replace(document.project, training=training))
    into(qtbot, line(form.schedule.when.editor("warmup")), "5")
    problem = form.schedule.when.rows["warmup"].problem
    qtbot.waitUntil(lambda: "does not support warmup" in problem.text())
    assert document.project.training.schedule == schedule


def test_a_schedule_that_is_removed_before_torch_has_made_it_does_not_come(
    qtbot: QtBot, form: TrainingForm, document: Document
) -> None:
    form.schedule.set_open(True)
    name = form.schedule.name
    name.setFocus()
    qtbot.keyClicks(name, "S")
    qtbot.keyClick(name, Qt.Key.Key_Home)
    shown: list[object] = []
    form.schedule._engine.ask(
        "after", CheckOptimizer(Choice("SGD")), on_answer=shown.append
    )
    qtbot.waitUntil(lambda: bool(shown))
    assert document.project.training.schedule is None and name.value() == ""


def leave_with(qtbot: QtBot, field: QLineEdit, text: str) -> None:
    """Type a text and leave the field before torch answers."""
    field.setFocus()
    field.selectAll()
    qtbot.keyClicks(field, text)
    qtbot.keyClick(field, Qt.Key.Key_Tab)


def test_a_value_that_was_refused_is_tried_again_beside_others_and_never_stands_unmarked(
    qtbot: QtBot, form: TrainingForm, document: Document
) -> None:
    form.schedule.set_open(True)
    schedule = Schedule(
        Choice("OneCycleLR", FrozenMap(max_lr=0.1, total_steps=460)), "step"
    )
    document.apply(
        "choose",
        replace(
            document.project,
            training=replace(document.project.training, schedule=schedule),
        ),
    )
    qtbot.waitUntil(lambda: form.schedule.form is not None)

    def params() -> FrozenMap:
        return document.project.training.schedule.choice.params

    rows = form.schedule.form.rows
    total = line(rows["total_steps"].editor)
    leave_with(qtbot, total, "0")
    qtbot.waitUntil(lambda: bool(rows["total_steps"].problem.text()))
    into(qtbot, line(rows["pct_start"].editor), "0.4")
    qtbot.waitUntil(
        lambda: (
            params().get("pct_start") == 0.4
            and bool(rows["total_steps"].problem.text())
        )
    )
    assert total.text() == "0" and params()["total_steps"] == 460
    leave_with(qtbot, total, "None")
    qtbot.waitUntil(lambda: "either" in rows["total_steps"].problem.text())
    into(qtbot, line(rows["epochs"].editor), "3")
    into(qtbot, line(rows["steps_per_epoch"].editor), "5")
    qtbot.waitUntil(
        lambda: (
            params().get("total_steps") is None and params().get("steps_per_epoch") == 5
        )
    )
    assert not rows["total_steps"].problem.text()


def test_fields_that_a_refused_value_contradicts_are_unmarked_when_it_is_given_up(
    qtbot: QtBot, form: TrainingForm, document: Document
) -> None:
    form.schedule.set_open(True)
    choice = Choice(
        "OneCycleLR", FrozenMap(max_lr=0.1, total_steps=460, steps_per_epoch=5)
    )
    training = replace(document.project.training, schedule=Schedule(choice, "step"))
    document.apply("choose", replace(document.project, training=training))
    qtbot.waitUntil(lambda: form.schedule.form is not None)
    rows = form.schedule.form.rows
    total = line(rows["total_steps"].editor)
    into(qtbot, total, "None")
    qtbot.waitUntil(
        lambda: all(
            rows[name].problem.text() for name in ("total_steps", "steps_per_epoch")
        )
    )
    qtbot.keyClick(total, Qt.Key.Key_Escape)
    assert total.text() == "460"
    assert not any(
        rows[name].problem.text() for name in ("total_steps", "steps_per_epoch")
    )


def test_an_interval_that_one_schedule_refuses_is_no_longer_shown_with_another(
    qtbot: QtBot, form: TrainingForm, document: Document
) -> None:
    form.schedule.set_open(True)
    form.schedule.name.setFocus()
    qtbot.keyClicks(form.schedule.name, "Reduce")
    per = form.schedule.when.rows["per"]
    qtbot.waitUntil(lambda: form.schedule.when.isVisible())
    per.editor.field.setFocus()
    qtbot.keyClicks(per.editor.field, "s")
    qtbot.waitUntil(lambda: "per epoch" in per.problem.text())
    qtbot.keyClick(form.schedule.name, Qt.Key.Key_Home)
    qtbot.waitUntil(lambda: document.project.training.schedule is None)
    qtbot.keyClick(form.schedule.name, Qt.Key.Key_Down)
    qtbot.waitUntil(lambda: document.project.training.schedule is not None)
    assert per.editor.field.value() == "epoch" and not per.problem.text()


def test_a_group_is_a_layer_of_the_net_with_numbers_of_its_own(
    qtbot: QtBot, form: TrainingForm, document: Document
) -> None:
    form.groups.set_open(True)
    qtbot.waitUntil(lambda: bool(form.groups._params))
    qtbot.mouseClick(form.groups.add, Qt.MouseButton.LeftButton)
    take(qtbot, form.groups.add, "fc1")
    assert document.project.training.groups == (
        ParameterGroup("fc1", FrozenMap(lr=0.0001)),
    )
    box = form.groups.boxes["fc1"]
    assert box.form.rows["weight_decay"].note.text() == "default"
    into(qtbot, line(box.form.editor("weight_decay")), "0.1")
    wanted = FrozenMap(lr=0.0001, weight_decay=0.1)
    qtbot.waitUntil(
        lambda: document.project.training.groups == (ParameterGroup("fc1", wanted),)
    )
    into(qtbot, line(box.form.editor("lr")), "-1")
    qtbot.waitUntil(
        lambda: "Invalid learning rate" in box.form.rows["lr"].problem.text()
    )
    qtbot.mouseClick(box.head.remove, Qt.MouseButton.LeftButton)
    assert document.project.training.groups == () and form.groups.boxes == {}


def test_what_is_frozen_is_named_as_left_out(
    form: TrainingForm, document: Document
) -> None:
    graph = document.project.graph
    node = next(node for node in graph.nodes.values() if node.name == "fc1")
    document.apply(
        "freeze",
        replace(document.project, graph=graph.with_node(replace(node, frozen=True))),
    )
    form.set_layers(analyse(document.project.graph))
    assert form.groups.frozen.text() == "Ignored, because it is frozen: fc1."


def test_an_optimizer_without_groups_says_so(
    qtbot: QtBot, form: TrainingForm, document: Document
) -> None:
    training = replace(document.project.training, optimizer=Choice("LBFGS"))
    document.apply("choose", replace(document.project, training=training))
    qtbot.waitUntil(
        lambda: "does not support parameter groups" in form.groups.words.text()
    )
    assert not form.groups.add.isEnabled()


def test_layers_to_recompute_are_chosen_from_the_net(
    qtbot: QtBot, form: TrainingForm, document: Document
) -> None:
    form.speed.set_open(True)
    qtbot.mouseClick(form.speed.recompute.add, Qt.MouseButton.LeftButton)
    take(qtbot, form.speed.recompute.add, "fc2")
    assert document.project.training.recompute == ("fc2",)
    training = replace(document.project.training, recompute=("fc2", "gone"))
    document.apply("rename", replace(document.project, training=training))
    assert form.speed.recompute.lines["gone"].name.property("tone") == "error"
    qtbot.mouseClick(
        form.speed.recompute.lines["gone"].remove, Qt.MouseButton.LeftButton
    )
    assert document.project.training.recompute == ("fc2",)


def test_cuda_is_said_to_wait_or_not_where_there_is_one(
    form: TrainingForm, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert form.speed.blocking.isHidden()
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    form.set_devices((Device("cuda:0", "NVIDIA H200"), Device("cpu", "CPU")))
    assert not form.speed.blocking.isHidden() and form.speed.blocking.text().startswith(
        "CUDA_LAUNCH_BLOCKING is 1."
    )


def test_each_input_of_a_net_takes_a_field_of_the_data(
    qtbot: QtBot, service: EngineService
) -> None:
    """The list under Data says which, with the keyboard another is chosen, and undo takes it back."""
    document = Document(file.read(path("examples", "Siamese net on digits.tape")))
    view = TrainingForm(document, service)
    qtbot.addWidget(view)
    with qtbot.waitExposed(view):
        view.show()
    view.set_fit(analyse(document.project.graph))
    box = view.data.fields
    assert box.isVisible()
    assert [choice.currentText().split(",")[0] for choice in box.choices.values()] == [
        "first",
        "second",
    ]
    choice = box.choices["first"]
    choice.setFocus()
    qtbot.keyClick(choice, Qt.Key.Key_Down)
    assert document.project.training.inputs == FrozenMap(first="second")
    view.set_fit(analyse(document.project.graph))
    assert choice.currentText().startswith("second")
    document.undo_stack.undo()
    view.set_fit(analyse(document.project.graph))
    assert not document.project.training.inputs and choice.currentText().startswith(
        "first"
    )


def test_what_few_change_is_under_more_and_what_differs_from_its_default_is_in_sight(
    qtbot: QtBot, form: TrainingForm, document: Document
) -> None:
    rows = form.numbers.rows

    def seen(name: str) -> bool:
        return rows[name].name.isVisible() and form.numbers.editor(name).isVisible()

    assert seen("epochs") and seen("seed") and not seen("leave_out")
    (more,) = [
        button
        for button in form.numbers.findChildren(Button)
        if button.text().startswith("More")
    ]
    assert more.text() == "More (3)" and "max_steps" in more.toolTip()
    qtbot.mouseClick(more, Qt.MouseButton.LeftButton)
    assert seen("leave_out") and seen("max_steps") and more.text() == "Less"
    into(qtbot, line(form.numbers.editor("max_steps")), "40")
    more.setFocus()
    qtbot.keyClick(more, Qt.Key.Key_Space)
    assert seen("max_steps") and not seen("leave_out") and more.text() == "More (2)"
    document.undo_stack.undo()
    assert not seen("max_steps") and more.text() == "More (3)"

    optimizer = form.optimizer.form
    assert optimizer is not None
    assert optimizer.editor("lr").isVisible()
    assert not optimizer.editor("fused").isVisible()
    document.apply(
        "Set fused",
        replace(
            document.project,
            training=replace(
                document.project.training,
                optimizer=Choice("Adam", FrozenMap(fused=True)),
            ),
        ),
    )
    assert optimizer.editor("fused").isVisible()
    rows["leave_out"].reveal()  # as a search for it does
    assert seen("leave_out")


def test_no_field_moves_as_a_run_begins_or_ends(
    qtbot: QtBot, form: TrainingForm, document: Document
) -> None:
    form.resize(304, 600)
    field = form.optimizer.form.editor("lr")
    form.area.ensureWidgetVisible(field)

    def place() -> QPoint:
        qtbot.wait(1)
        return field.mapTo(form, QPoint())

    before, project = place(), document.project
    form.set_running(True, RunSettings("Run 3", project.training, project.data))
    assert form.running.isVisible() and place() == before
    assert form.running.mapTo(form, QPoint()).y() > form.area.geometry().bottom()
    form.set_running(False)
    assert not form.running.isVisible() and place() == before
