"""The page Evaluation: what it shows of an evaluation, and the pad that a net is tried on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QCoreApplication, QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QColor, QFocusEvent, QFontMetricsF, QImage
from PySide6.QtWidgets import QFileDialog

from app.data.config import DataConfig, Transform
from app.data.spec import DataError
from app.features.evaluation.compute import likeness, read_file, survey, try_input
from app.features.evaluation.drawing_pad import Pad
from app.features.evaluation.input_pictures import (
    as_drawn,
    as_input,
    drawing_style,
    resized,
)
from app.features.evaluation.page import EvaluationPage
from app.features.evaluation.samples import SampleTiles
from app.features.evaluation.try_page import TryPage
from app.features.evaluation.values import InputSurvey, PictureFile
from app.training.config import Choice
from app.training.evaluation.evaluator import Evaluator
from app.training.evaluation.result import Shown
from app.training.evaluation.shown_samples import shown
from app.views.ui import theme
from tests.support.training_jobs import CONV_NET, SMALL_NET, example, job, net
from tests.training.test_one_output import CODE, binary_job, signs  # noqa: F401
from tests.training.test_target_units import house_job, prices  # noqa: F401

COLOUR_NET = net(
    ["self.linear1 = nn.Linear(192, 2)"],
    ["return self.linear1(x.flatten(1))"],
    (3, 8, 8),
)
TABLE_NET = net(["self.linear1 = nn.Linear(4, 3)"], ["return self.linear1(x)"], (4,))


@pytest.fixture(autouse=True)
def themed(qapp):
    theme.apply(qapp, "dark")


@pytest.fixture(scope="module")
def evaluator():
    return Evaluator(job(CONV_NET))


@pytest.fixture(scope="module")
def found(evaluator):
    return evaluator.evaluate()


@pytest.fixture
def page(qtbot, found):
    made = EvaluationPage()
    qtbot.addWidget(made)
    made.resize(1290, 310)
    made.show()
    made.set_found(found)
    return made


def test_the_figures_are_those_that_were_found(page, found):
    texts = page.figures.texts()
    assert texts[1] == f"Accuracy {100 * found.accuracy:.2f} %" and any(
        text.startswith("AUROC 0.") for text in texts
    )
    assert page.figures.layout().indexOf(page.figures._note) == 1, (
        "which weights they are of, before the figures"
    )


def test_a_click_on_a_cell_asks_for_its_samples(qtbot, page, found):
    number = found.wrong()[0]
    cell = (
        int(found.columns["true"][number, 0]),
        int(found.columns["called"][number, 0]),
    )
    with qtbot.waitSignal(page.wanted) as asked:
        place = page.matrix.centre_of(*cell).toPoint()
        qtbot.mouseClick(page.matrix, Qt.MouseButton.LeftButton, pos=place)
    assert asked.args[0] == found.cell(*cell).tolist() and number in asked.args[0]
    with qtbot.waitSignal(page.matrix.chosen) as moved:
        qtbot.keyClick(page.matrix, Qt.Key.Key_Down)
    assert moved.args == [min(cell[0] + 1, 9), cell[1]]


def test_misclassified_or_all_by_their_loss(qtbot, page, found):
    with qtbot.waitSignal(page.wanted) as asked:
        page.order.set_value("worst")
    assert asked.args[0] == found.worst().tolist()
    with qtbot.waitSignal(page.wanted) as asked:
        page.order.set_value("wrong")
    assert asked.args[0] == found.wrong().tolist()


def test_a_picture_says_which_of_its_numbers_is_the_loss(qtbot):
    area = SampleTiles()
    qtbot.addWidget(area)
    area.resize(268, 180)  # of a window of 1280x800
    with qtbot.waitExposed(area):
        area.show()
    tiles = area.tiles
    sample = Shown(
        0, np.zeros((8, 8, 3), np.uint8), "", "4 → 9", "56 %, loss 4.96", False, ""
    )
    tiles.set_samples((sample,))
    metrics = QFontMetricsF(theme.font("axis"))
    assert tiles._side >= metrics.horizontalAdvance("loss 4.96"), "on a line of its own"
    assert tiles._across == 3, "beside one another"


@pytest.mark.parametrize("column", range(5))
def test_the_table_is_sorted_by_any_column(page, found, column):
    model = page.classes.cells
    for order in (Qt.SortOrder.AscendingOrder, Qt.SortOrder.DescendingOrder):
        page.classes.sortByColumn(column, order)
        rows = [row for _, row in model.rows]
        values = [
            (float(row.name), row.precision, row.recall, row.f1, row.support)[column]
            for row in rows
        ]
        values = [value for value in values if value == value]
        assert values == sorted(values, reverse=order == Qt.SortOrder.DescendingOrder)
    assert sorted(number for number, _ in model.rows) == list(range(10))


def test_samples_come_with_picture_class_and_probabilities(page, evaluator, found):
    numbers = found.wrong()[:5].tolist()
    told = shown(evaluator, found, numbers)
    assert [one.number for one in told] == numbers and not any(
        one.right for one in told
    )
    true, called = (
        found.columns["true"][numbers[0], 0],
        found.columns["called"][numbers[0], 0],
    )
    assert told[0].title == f"{true} → {called}" and told[0].tip.count("%") == 5
    inputs, _ = evaluator.read("validation", numbers)
    assert np.array_equal(
        told[0].picture[:, :, 0], (inputs[0, 0] * 255).round().byte().numpy()
    )
    page.show_samples(told)
    assert not page.grab().isNull()
    page.set_found(found)
    assert not page.samples.tiles.samples, "those of the evaluation before"


def test_a_tile_is_as_wide_as_the_classes_in_its_caption(qtbot):
    tiles, pixels = SampleTiles(), np.zeros((8, 8, 3), np.uint8)
    qtbot.addWidget(tiles)

    def width(title):
        tiles.set_samples((Shown(0, pixels, "", title, "1 %, loss 2", False, ""),))
        return tiles.tiles._box(0).width()

    assert width("normal → lesion") >= QFontMetricsF(
        theme.font("label")
    ).horizontalAdvance("normal → lesion")
    assert width("normal → lesion") > width("3 → 5")


def test_values_have_a_plot_in_place_of_the_matrix(qtbot):
    from msgspec.structs import replace

    from app.training.evaluation.result import Evaluation

    true = np.linspace(0, 1, 20, dtype=np.float32)[:, None]
    columns = {
        "true": true,
        "called": true + 0.1,
        "loss": np.full(20, 0.01, np.float32),
    }
    values = Evaluation(
        "x", "test", "w", "values", (), 20, 0.01, None, (("r2", 0.9),), None, columns
    )
    page = EvaluationPage()
    qtbot.addWidget(page)
    page.resize(1290, 310)
    page.show()
    page.set_found(replace(values))
    assert (
        page.plot.isVisible()
        and not page.matrix.isVisible()
        and not page.classes.isVisible()
    )
    xs, ys = page.plot._points()
    with qtbot.waitSignal(page.wanted) as asked:
        qtbot.mouseClick(
            page.plot, Qt.MouseButton.LeftButton, pos=QPoint(round(xs[7]), round(ys[7]))
        )
    assert asked.args[0] == [7]


# --- Trying the net


def draw(pad: Pad, *points: tuple[int, int]) -> None:
    for begin, end in zip(points, points[1:], strict=False):
        pad.stroke(QPointF(*begin), QPointF(*end))


def of_pictures(pictures: np.ndarray) -> InputSurvey:
    low, high = pictures.min(0), pictures.max(0)
    return InputSurvey(
        (1, *pictures.shape[1:]),
        (),
        low,
        high,
        low,
        (),
        True,
        "w",
        drawing=drawing_style(pictures),
    )


def test_a_drawing_lies_in_its_picture_as_the_training_samples_do(qtbot):
    pad = Pad()
    qtbot.addWidget(pad)
    draw(pad, (20, 20), (20, 90))  # a one, far from the middle
    training = np.zeros((40, 28, 28), np.float32)  # bars, heavier at one end
    for number, bar in enumerate(training):
        bar[4:24, 14:17] = 1
        bar[4:10, 8 + number % 3 : 20 - number % 3] = 1
        bar[:] = np.roll(
            bar, 14 - round(float((bar.sum(1) @ np.arange(28)) / bar.sum())), 0
        )
    survey = of_pictures(training)
    assert survey.drawing.by_mass and not survey.drawing.dark
    assert survey.drawing.fill == pytest.approx(20 / 28)
    digit = as_drawn(pad.ink(), survey)[0]
    rows, columns = (
        np.nonzero(digit.max(1) > 0.05)[0],
        np.nonzero(digit.max(0) > 0.05)[0],
    )
    assert rows[-1] - rows[0] + 1 == 20 and digit.max() == 1.0
    middle = (
        (digit.sum(1) * (np.arange(28) + 0.5)).sum() / digit.sum(),
        (digit.sum(0) * (np.arange(28) + 0.5)).sum(),
    )
    assert middle[0] == pytest.approx(14, abs=0.6) and middle[
        1
    ] / digit.sum() == pytest.approx(14, abs=0.6)
    assert len(columns) < 10
    on_paper = as_drawn(pad.ink(), of_pictures(1 - training))[0]
    assert on_paper == pytest.approx(1 - digit), "dark on light, as the data are"
    small = np.zeros((9, 8, 8), np.float32)
    small[:, :, 3:5] = 1
    drawn = as_drawn(pad.ink(), of_pictures(small))[0]
    assert (drawn.max(1) > 0.05).all(), "it fills the picture, as the data do"
    photos = np.random.default_rng(0).random((20, 28, 28), np.float32)
    assert of_pictures(photos).drawing is None
    whole = as_drawn(pad.ink(), of_pictures(photos))[0]
    assert whole[:, 10:].max() == 0 < whole[5, 2], "it stays where it was drawn"
    pad.clear()
    assert not as_drawn(pad.ink(), survey).any()


def test_keys_draw(qtbot):
    pad = Pad()
    qtbot.addWidget(pad)
    for key in (Qt.Key.Key_Left, Qt.Key.Key_Up):
        qtbot.keyClick(pad, key)
    assert pad.empty
    qtbot.keyClick(pad, Qt.Key.Key_Down, Qt.KeyboardModifier.ShiftModifier)
    assert not pad.empty and pad.ink().any()
    qtbot.keyClick(pad, Qt.Key.Key_Delete)
    assert pad.empty


def test_what_is_unlike_the_data_is_said_from_what_was_measured(evaluator):
    like = likeness(evaluator)
    inputs, _ = evaluator.read("training", range(20))
    assert not any(like.remark(sample) for sample in inputs)
    assert like.remark(inputs[0] * 0 + 50).startswith("Unlike the data: ")


@given(st.tuples(*[st.integers(2, 40)] * 4), st.integers(0, 2**32 - 1))
def test_pictures_are_resized_as_torch_does(sides, seed):
    """From 2 pixels on: torch does not agree with itself on a width of 1."""
    from torch.nn import functional as F

    values = np.random.default_rng(seed).random((2, *sides[:2]), np.float32)
    there = F.interpolate(
        torch.from_numpy(values)[None], sides[2:], mode="bilinear", antialias=True
    )[0]
    assert resized(values, sides[2:]) == pytest.approx(there.numpy(), abs=1e-5)


def test_a_drawing_is_answered_while_it_is_drawn(qtbot, evaluator):
    page = TryPage()
    qtbot.addWidget(page)
    page.resize(1200, 300)
    page.show()
    page.set_survey(survey(evaluator, "start weights"))
    with qtbot.waitSignal(page.prediction_requested) as asked:
        qtbot.mousePress(page.pad, Qt.MouseButton.LeftButton, pos=QPoint(60, 60))
        qtbot.mouseMove(page.pad, QPoint(120, 120))
    answer = try_input(evaluator, asked.args[0], layers=True)
    page.show_answer(answer)
    assert answer.values.sum() == pytest.approx(
        1, abs=1e-5
    ) and page.bars.called == str(answer.values.argmax())
    assert [name for name, _ in answer.layers] == [
        "conv1",
        "norm1",
        "conv2",
    ] and answer.seen.shape == (8, 8, 3)
    assert page.words.text().startswith(
        "Your drawing at 8×8: scaled to 100 % of the side"
    )


def test_a_picture_is_dropped_or_chosen_resized_greyed_and_brought_into_the_range_of_the_data(
    qtbot, evaluator, tmp_path, monkeypatch
):
    image = QImage(40, 20, QImage.Format.Format_RGB888)
    image.fill(QColor(255, 0, 0))
    image.save(str(tmp_path / "red.png"))
    page = TryPage()
    qtbot.addWidget(page)
    page.set_survey(survey(evaluator, "start weights"))
    with qtbot.waitSignal(page.prediction_requested) as asked:
        page.take_picture(tmp_path / "red.png")
    monkeypatch.setattr(
        QFileDialog, "getOpenFileName", lambda *_: (str(tmp_path / "red.png"), "")
    )
    with qtbot.waitSignal(page.prediction_requested) as chosen:
        page.choose.click()
    assert chosen.args == asked.args
    taken, _ = read_file(evaluator, asked.args[0], page.survey)
    assert taken.shape == (1, 8, 8) and taken == pytest.approx(0.299, abs=1e-3)
    assert try_input(evaluator, asked.args[0], survey=page.survey).seen.shape == (
        8,
        8,
        3,
    )
    assert "red.png" in page.words.text()
    page.invert.setChecked(True)
    assert read_file(evaluator, page.sample(), page.survey)[0] == pytest.approx(
        0.701, abs=1e-3
    )
    (tmp_path / "no.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match="no.png cannot be read"):
        try_input(evaluator, PictureFile(tmp_path / "no.png"), survey=page.survey)


def test_a_picture_of_a_folder_is_predicted_from_the_values_that_it_is_trained_and_evaluated_with(
    tmp_path,
):
    from tests.data.test_pictures import folder_of_16_bits

    data = folder_of_16_bits(
        tmp_path,
        eval_transforms=(Transform("Normalize"),),
        train_transforms=(Transform("Normalize"),),
    )
    evaluator = Evaluator(job(COLOUR_NET, data=data, loss=Choice("CrossEntropyLoss")))
    taken = survey(evaluator, "start weights")
    evaluated = evaluator.read("validation", range(2))[0]
    files = sorted(tmp_path.rglob("*.png"))
    values = [read_file(evaluator, PictureFile(file), taken)[0] for file in files]
    for sample in evaluated.numpy():
        assert any(np.array_equal(sample, own) for own in values)
    assert (
        "more than 8 bits"
        in try_input(evaluator, PictureFile(files[0]), survey=taken).remark
    )


def test_a_colour_net_gets_three_channels_each_in_its_own_range():
    from app.features.evaluation.values import InputSurvey

    low, high = np.array([-1, -2, 0], np.float32), np.array([1, 2, 4], np.float32)
    taken = InputSurvey((3, 4, 4), ("a",), low, high, (low + high) / 2, (), True, "w")
    found = as_input(np.ones((1, 8, 8), np.float32), taken)
    assert found.shape == (3, 4, 4) and found[:, 0, 0].tolist() == [1, 2, 4]


def test_a_row_of_a_table_is_typed(qtbot):
    evaluator = Evaluator(job(TABLE_NET, data=DataConfig("sklearn.iris")))
    taken = survey(evaluator, "start weights")
    page = TryPage()
    qtbot.addWidget(page)
    page.set_survey(taken)
    assert len(page.fields) == 4 and "sepal" in page.fields[0].accessibleName()
    assert page.sample() == pytest.approx(np.zeros(4), abs=0.1), (
        "about the mean of the whole training part"
    )
    assert page.fields[2].value() == pytest.approx(3.76, abs=0.2), "in cm"
    with qtbot.waitSignal(page.prediction_requested) as asked:
        type_number(qtbot, page.fields[2], "9")
    assert asked.args[0][2] == pytest.approx(
        float(evaluator.data.scales[""].scaled(np.full(4, 9.0))[2]), abs=1e-5
    )
    assert try_input(evaluator, asked.args[0]).values.sum() == pytest.approx(
        1, abs=1e-5
    )


def type_number(qtbot, field, text):
    field.selectAll()
    qtbot.keyClicks(field, text)
    qtbot.keyClick(field, Qt.Key.Key_Return)


HOUSES = "area,rooms,city,price\n" + "".join(
    f"{60 + number % 40},{1 + number % 5},{'AB'[number % 2]},{1000 * number}.5\n"
    for number in range(60)
)


@pytest.fixture
def houses(tmp_path):
    (tmp_path / "houses.csv").write_text(HOUSES)
    data = DataConfig("file.csv", path=str(tmp_path / "houses.csv"))
    source = net(["self.linear1 = nn.Linear(4, 1)"], ["return self.linear1(x)"], (4,))
    return Evaluator(job(source, data=data, loss=Choice("MSELoss")))


def test_a_table_is_entered_and_shown_in_the_units_and_names_of_its_file(qtbot, houses):
    page = TryPage()
    qtbot.addWidget(page)
    page.set_survey(survey(houses, "start weights"))
    assert [field.accessibleName() for field in page.fields] == [
        "area",
        "rooms",
    ]
    city = page._numbers.choices["city"]
    assert city.choices() == ("A", "B")
    assert 60 <= page.fields[0].value() <= 100 and page.survey.outputs == ("price",)
    with qtbot.waitSignal(page.prediction_requested) as asked:
        type_number(qtbot, page.fields[0], "80")
    assert abs(asked.args[0][0]) < 0.3, "80 m² is an ordinary area, not z = 80"
    with qtbot.waitSignal(page.prediction_requested) as other:
        city.setFocus()
        qtbot.keyClick(city, Qt.Key.Key_Down)
    houses_scale = houses.data.scales[""]
    typed = houses_scale.unscaled(np.asarray(other.args[0]))
    assert typed[2:].tolist() in ([0, 1], [1, 0]) and typed[0] == 80
    page.show_answer(try_input(houses, asked.args[0]))
    assert page.bars.called == "price"
    found = houses.evaluate()
    (worst,) = shown(houses, found, found.worst()[:1])
    row = HOUSES.splitlines()[
        1 + int(houses.data.rows["validation"][worst.number])
    ].split(",")
    assert worst.text.startswith(f"area {row[0]}, rooms {row[1]}, city {row[2]}")


def test_a_number_outside_of_the_training_samples_is_said(qtbot, houses):
    page = TryPage()
    qtbot.addWidget(page)
    page.set_survey(survey(houses, "start weights"))
    (area, *_), words = page.fields, page._numbers.ranges[0]
    assert words.text() == "60 to 99"
    type_number(qtbot, area, "450")
    assert (
        words.text() == "outside 60 to 99 of the training samples"
        and words.property("tone") == "warn"
    )
    page.resize(900, 300)
    page.show()
    assert len({field.width() for field in page.fields}) == 1, "fields are in a column"
    type_number(qtbot, area, "75")
    assert words.text() == "60 to 99" and words.property("tone") == "text3"


@pytest.mark.parametrize("name", ["Siamese net on digits", "Encoder-decoder on dates"])
def test_a_sample_with_several_inputs_is_entered_one_by_one(qtbot, name):
    evaluator = Evaluator(example(name, 40))
    page = TryPage()
    qtbot.addWidget(page)
    page.prediction_requested.connect(
        lambda sample: page.show_answer(try_input(evaluator, sample))
    )
    page.set_survey(survey(evaluator, "start weights"))
    entries, before = page.several.entries, page.sample()
    if "first" in entries:
        entries["second"].pad.stroke(QPointF(40, 40), QPointF(120, 150))
        qtbot.waitUntil(lambda: "Your drawing" in entries["second"].words.text())
        assert not np.array_equal(page.sample()["second"], before["second"])
        assert np.array_equal(page.sample()["first"], before["first"])
    else:
        line = entries["written"].line
        line.selectAll()
        qtbot.keyClicks(line, "3 march 1997")
        qtbot.keyClick(line, Qt.Key.Key_Return)
        assert (
            page.sample()["written"][:2].tolist() == [5, 1]
            and not page.sample()["written"][12:].any()
        )
        qtbot.keyClicks(line, "!")
        QCoreApplication.sendEvent(line, QFocusEvent(QEvent.Type.FocusOut))
        assert "is not one of the symbols" in entries["written"].words.text()
    assert page.bars.called


def test_trying_leaves_the_generators_and_the_net_as_they_were():

    evaluator = Evaluator(job(SMALL_NET))
    before, weights = (
        torch.get_rng_state(),
        evaluator.stepper.model.state_dict()["linear1.weight"].clone(),
    )
    first = try_input(evaluator, np.zeros((1, 8, 8), np.float32), layers=True)
    second = try_input(evaluator, np.zeros((1, 8, 8), np.float32))
    assert np.array_equal(first.values, second.values), "dropout is off"
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(weights, evaluator.stepper.model.state_dict()["linear1.weight"])


# --- Metrics of a run


def test_metrics_are_chosen_among_those_that_fit_the_data(qtbot):
    from app.training.config import TrainingConfig
    from app.views.training.form.metrics_section import MetricsSection

    section = MetricsSection()
    qtbot.addWidget(section)
    section.set_data(DataConfig())
    section.show_config(TrainingConfig(metrics=("f1", "mae")))
    assert "perplexity" not in section.toggles and section.toggles["f1"].value()
    assert (
        "does not apply" in section.toggles["mae"].toolTip()
        and section.summary == "F1, MAE"
    )
    with qtbot.waitSignal(section.edited) as told:
        section.toggles["auroc"].click()
    assert told.args[:2] == ["metrics", ("f1", "auroc", "mae")]
    section.show_config(TrainingConfig(metrics=told.args[1]))
    with qtbot.waitSignal(section.edited) as told:
        section.toggles["mae"].click()
    assert told.args[1] == ("f1", "auroc")


def test_metrics_are_drawn_beside_the_accuracy_and_alone_where_there_is_none(qtbot):
    from app.training.events import EpochDone, Started, StepDone
    from app.training.history import History
    from app.views.training.charts.charts import AccuracyChart

    for accuracy, metrics, title in (
        (0.5, (("f1", 0.4), ("perplexity", 7.0)), "Accuracy"),
        (None, (("mae", 3.0), ("r2", 0.2)), "Metrics"),
    ):
        history = History()
        history.add(Started("cpu", None, 2, 1, 1, 0, 1, (), 1, 1))
        for epoch in (1, 2):
            history.add(StepDone(epoch, epoch, 1.0, 1, float(epoch)))
            history.add(
                EpochDone(
                    epoch, epoch, 1.0, accuracy, 1.0, accuracy, float(epoch), metrics
                )
            )
        chart = AccuracyChart()
        qtbot.addWidget(chart)
        chart.set_history(history, "step")
        chart.redraw()
        assert chart.heading.texts[0] == title
        told = {entry.label: entry.value for entry in chart.entries(None)}
        if accuracy:
            assert told == {
                "training": "50.00",
                "validation": "50.00",
                "F1": "40.00",
                "Perplexity": "7.00",
            }
        else:
            assert told == {"MAE": "3.00", "R², right axis": "0.200"}
            low, high = chart.plot.right.range
            assert low < 0.2 < high < 3, "an axis of its own: it has no unit"
            assert (
                chart.plot.view.viewRange()[1][0]
                < 3
                < chart.plot.view.viewRange()[1][1]
            )


@pytest.mark.parametrize("shape", CODE)
def test_one_logit_predicts_two_classes(signs, shape):
    evaluator = Evaluator(binary_job(signs, CODE[shape]))
    inputs, _ = evaluator.read("validation", [0])
    with torch.no_grad():
        second = float(evaluator.stepper.model(inputs).sigmoid())
    predicted = try_input(evaluator, inputs[0].numpy()).values
    assert predicted == pytest.approx([1 - second, second], abs=1e-6)


def test_a_prediction_is_in_the_units_of_the_file(prices):
    evaluator = Evaluator(house_job(prices))
    called = evaluator.evaluate().columns["called"]
    inputs, _ = evaluator.read("validation", [0])
    assert try_input(evaluator, inputs[0].numpy()).values[0] == pytest.approx(
        called[0, 0], rel=1e-4
    )
    assert called[0, 0] > 50_000


def test_several_inputs_are_surveyed_and_predicted_by_name():
    evaluator = Evaluator(example("Siamese net on digits", 120))
    parts = survey(evaluator, "").parts
    assert [part.name for part in parts] == ["first", "second"]
    assert all(part.first is not None for part in parts)
    given, _ = evaluator.read("validation", [0, 1])
    sample = {name: one[0].numpy() for name, one in given.parts.items()}
    called = evaluator.evaluate().columns["called"]
    assert try_input(evaluator, sample).values.argmax() == called[0, 0]
