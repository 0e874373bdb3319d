"""The Loss section with several outputs: a loss, a weight and a target for each; and what is said before a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app.builder.analysis import analyse
from app.data.config import DataConfig
from app.data.loaders import load, read_spec
from app.preflight import preflight
from app.preflight.preflight import job
from app.project.document import Document
from app.project.file import dumps, loads
from app.project.project import Project
from app.training.config import INPUT, Choice, OutputLoss, TrainingConfig
from app.training.events import EpochDone, Finished, LossParts
from app.training.history import History
from app.training.loop import train
from app.util.frozen import FrozenMap
from app.views.training.charts.charts import LossChart
from app.views.training.form.settings_form import TrainingForm
from tests.support.builder_nets import net


def two_outputs() -> Project:
    """Which digit it is, and the picture again."""
    graph = net(
        [
            ("input", "x", {"shape": (1, 8, 8)}),
            ("nn.Flatten", "flatten", {}),
            ("nn.Linear", "body", {"out_features": 16}),
            ("nn.Linear", "fc", {"out_features": 10}),
            ("output", "digit", {}),
            ("nn.Linear", "back", {"out_features": 64}),
            ("nn.Unflatten", "shaped", {"dim": 1, "unflattened_size": (1, 8, 8)}),
            ("output", "again", {}),
        ],
        [
            ("x", "flatten"),
            ("flatten", "body"),
            ("body", "fc"),
            ("fc", "digit"),
            ("body", "back"),
            ("back", "shaped"),
            ("shaped", "again"),
        ],
    )
    return Project(
        graph=graph, training=TrainingConfig(epochs=1, batch_size=300, device="cpu")
    )


def test_several_outputs_are_said_and_one_click_gives_each_a_loss_that_fits() -> None:
    project = two_outputs()
    (problem,) = preflight.problems(project, analyse(project.graph))
    assert problem.message == "One loss takes one output"
    rows = problem.cures[0].settings["losses"]
    assert rows == (
        OutputLoss("digit", Choice("CrossEntropyLoss")),
        OutputLoss("again", Choice("MSELoss"), 1.0, INPUT),
    )
    cured = replace(project, training=replace(project.training, losses=rows))
    analysis = analyse(cured.graph)
    assert (
        preflight.problems(cured, analysis) == ()
        and loads(dumps(cured)).training == cured.training
    )
    events = list(train(job(cured, analysis)))
    assert isinstance(events[-1], Finished), events[-1]
    done = next(event for event in events if isinstance(event, EpochDone))
    assert [name for name, _ in done.metrics] == ["loss_digit", "loss_again"]
    wrong = (
        OutputLoss("again", Choice("CrossEntropyLoss")),
        OutputLoss("gone", Choice("MSELoss")),
    )
    found = preflight.problems(
        replace(cured, training=replace(cured.training, losses=wrong)), analysis
    )
    assert [one.message for one in found] == [
        "again is N×1×8×8",
        "The network has no output gone",
    ]


def test_class_weights_want_one_loss_of_several_that_takes_them() -> None:
    project = replace(two_outputs(), data=DataConfig(class_weights=True))
    rows = (
        OutputLoss("digit", Choice("BCEWithLogitsLoss")),
        OutputLoss("again", Choice("MSELoss"), 1.0, INPUT),
    )
    project = replace(
        project, training=replace(project.training, losses=rows, mixup=0.2)
    )
    analysis = analyse(project.graph)
    (problem,) = preflight.problems(project, analysis)
    assert problem.message == "No loss supports class weights"
    cured = replace(
        project, training=replace(project.training, **problem.cures[0].settings)
    )
    assert [row.loss.name for row in cured.training.losses] == [
        "CrossEntropyLoss",
        "MSELoss",
    ]
    assert preflight.problems(cured, analysis) == ()


def test_an_auxiliary_head_has_the_same_target_and_counts_less() -> None:
    graph = net(
        [
            ("input", "x", {"shape": (1, 8, 8)}),
            ("nn.Flatten", "flatten", {}),
            ("nn.Linear", "fc", {"out_features": 10}),
            ("output", "out", {}),
            ("nn.Linear", "early", {"out_features": 10}),
            ("output", "aux", {"when": "training"}),
        ],
        [
            ("x", "flatten"),
            ("flatten", "fc"),
            ("fc", "out"),
            ("flatten", "early"),
            ("early", "aux"),
        ],
    )
    project = Project(graph=graph, training=TrainingConfig(epochs=1, device="cpu"))
    (problem,) = preflight.problems(project, analyse(graph))
    rows = problem.cures[0].settings["losses"]
    assert [(row.output, row.weight, row.target) for row in rows] == [
        ("out", 1.0, ""),
        ("aux", 0.3, ""),
    ]
    cured = replace(project, training=replace(project.training, losses=rows))
    events = list(train(job(cured, analyse(graph))))
    assert isinstance(events[-1], Finished)
    assert next(e for e in events if isinstance(e, LossParts)).outputs == ("out", "aux")


def test_a_table_of_several_targets_wants_to_know_which(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "a,b,kind,size\n" + "\n".join(f"{i},{i % 3},{i % 2},{i / 7}" for i in range(50))
    )
    config = DataConfig(
        "file.csv",
        path=str(tmp_path / "t.csv"),
        options=FrozenMap(target="kind", more_targets=("size",)),
    )
    read_spec(config)
    graph = net(
        [
            ("input", "x", {"shape": (2,)}),
            ("nn.Linear", "fc", {"out_features": 1}),
            ("output", "y", {}),
        ]
    )
    project = Project(
        graph=graph, data=config, training=TrainingConfig(epochs=1, device="cpu")
    )
    (problem,) = preflight.problems(project, analyse(graph))
    assert "takes one target" in problem.message and "kind, size" in problem.reason
    assert problem.cures[0].settings["losses"] == (
        OutputLoss("y", Choice("MSELoss"), 1.0, "size"),
    )
    assert len(load(config).info.targets) == 2


@pytest.fixture
def form(qtbot: Any, service: Any) -> Any:
    def make(project: Project) -> TrainingForm:
        made = TrainingForm(Document(project), service)
        qtbot.addWidget(made)
        made.set_devices(())
        made.resize(340, 900)
        made.show()
        analysis = analyse(project.graph)
        made.set_fit(analysis)
        made.set_layers(analysis)
        return made

    yield make


def test_each_output_has_a_row_with_loss_weight_and_target(
    form: Any, qtbot: Any
) -> None:
    made = form(two_outputs())
    document = made._document
    assert not made.loss.name.isVisible() and made.loss.give.isVisible()
    made.loss.give.click()
    assert (
        list(made.loss.outputs) == ["digit", "again"] and not made.loss.give.isVisible()
    )
    again = made.loss.outputs["again"]
    assert (
        again.summary == "MSELoss, the input itself" and again.target.value() == INPUT
    )
    again.set_open(True)
    again.weight.edited.emit("weight", 0.5, None)
    again.name.edited.emit("L1Loss")
    assert document.project.training.losses[1] == OutputLoss(
        "again", Choice("L1Loss"), 0.5, INPUT
    )
    again.weight.edited.emit("weight", -1.0, None)
    assert document.project.training.losses[1].weight == 0.5
    again.first.click()
    assert [row.output for row in document.project.training.losses] == [
        "again",
        "digit",
    ]
    assert "those of again" in made.loss.told.text()
    document.apply(
        "Weigh", replace(document.project, data=DataConfig(class_weights=True))
    )
    assert (
        "Class weights apply to the loss of digit; not in that of again (L1Loss)."
        in made.loss.told.text()
    )
    made.loss.outputs["digit"].none.click()
    assert [row.output for row in document.project.training.losses] == ["again"]
    assert (
        made.loss.missing.text() == "Give digit a loss"
        and made.loss.missing.isVisible()
    )
    made.loss.missing.click()
    assert [row.output for row in document.project.training.losses] == [
        "again",
        "digit",
    ]
    made.loss.acted.emit()
    assert document.project.training.losses == ()
    document.undo_stack.undo()
    assert len(document.project.training.losses) == 2


def test_an_autoencoder_compares_with_its_input(form: Any) -> None:
    graph = net(
        [
            ("input", "x", {"shape": (1, 8, 8)}),
            ("nn.Conv2d", "c", {"out_channels": 1, "kernel_size": 3, "padding": 1}),
            ("output", "y", {}),
        ]
    )
    made = form(Project(graph=graph, training=TrainingConfig(epochs=1, device="cpu")))
    assert (
        made.loss.name.isVisible()
        and made.loss.target.isVisible()
        and not made.loss.give.isVisible()
    )
    made.loss.target.edited.emit(INPUT)
    project = made._document.project
    assert project.training.losses == (OutputLoss("y", Choice("MSELoss"), 1.0, INPUT),)
    analysis = analyse(graph)
    assert preflight.problems(project, analysis) == ()
    assert isinstance(list(train(job(project, analysis)))[-1], Finished)
    made.loss.outputs["y"].target.edited.emit("")
    assert made._document.project.training.losses == ()


def test_the_loss_of_an_output_under_a_key_stays_whatever_is_chosen_for_it(
    form: Any,
) -> None:
    graph = net(
        [
            ("input", "x", {"shape": (1, 8, 8)}),
            ("nn.Flatten", "flatten", {}),
            ("nn.Linear", "fc", {"out_features": 10}),
            ("output", "logits", {"key": "logits"}),
        ]
    )
    made = form(Project(graph=graph, training=TrainingConfig(epochs=1, device="cpu")))
    made.loss.give.click()
    made.loss.outputs["logits"].name.edited.emit("MultiMarginLoss")
    made.loss.outputs["logits"].name.edited.emit("CrossEntropyLoss")
    project = made._document.project
    assert project.training.losses == (
        OutputLoss("logits", Choice("CrossEntropyLoss")),
    )
    assert isinstance(list(train(job(project, analyse(graph))))[-1], Finished)


def test_the_loss_chart_has_a_curve_and_a_name_for_each_output(qtbot: Any) -> None:
    project = two_outputs()
    rows = (
        OutputLoss("digit", Choice("CrossEntropyLoss")),
        OutputLoss("again", Choice("MSELoss"), 1.0, INPUT),
    )
    project = replace(
        project, training=replace(project.training, losses=rows, epochs=2)
    )
    history = History()
    history.extend(train(job(project, analyse(project.graph))))
    chart = LossChart()
    qtbot.addWidget(chart)
    chart.resize(500, 300)
    chart.show()
    chart.set_history(history, "step")
    chart.plot.set_x_range(0, 12)
    chart.redraw()
    assert [entry.label for entry in chart.entries(None)] == [
        "training",
        "validation",
        "digit",
        "again",
    ]
    of_again = [c for c in chart.plot.curves if c.series and c.series.label == "again"]
    assert [len(curve.points()[0]) for curve in of_again] == [len(history.steps), 2]


def test_a_column_may_be_a_further_target(qtbot: Any, tmp_path: Path) -> None:
    from app.data.sources import options_of
    from app.views.training.form.data.columns_table import (
        ALSO,
        INPUT,
        TARGET,
        ColumnsTable,
    )

    (tmp_path / "t.csv").write_text(
        "a,b,kind,size\n" + "\n".join(f"{i},{i % 3},{i % 2},{i / 7}" for i in range(50))
    )
    config = DataConfig(
        "file.csv", path=str(tmp_path / "t.csv"), options=FrozenMap(target="kind")
    )
    table = ColumnsTable()
    qtbot.addWidget(table)
    table.show_columns(read_spec(config), options_of(config))
    told: list[Any] = []
    table.edited.connect(told.append)
    table.roles["size"].set_value(ALSO)
    table.roles["size"].edited.emit(ALSO)
    assert (
        told[-1]["target"] == "kind"
        and told[-1]["more_targets"] == ("size",)
        and told[-1]["inputs"] == ("a", "b")
    )
    config = replace(
        config, options=FrozenMap({k: v for k, v in told[-1].items() if v})
    )
    assert [one.name for one in read_spec(config).targets] == ["kind", "size"]
    table.show_columns(read_spec(config), options_of(config))
    roles = {name: field.value() for name, field in table.roles.items()}
    assert roles == {"a": INPUT, "b": INPUT, "kind": TARGET, "size": ALSO}
