"""The small widgets: what a person does with them, and what they tell."""

import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, QRect, Qt, qInstallMessageHandler
from PySide6.QtGui import QFocusEvent, QWheelEvent
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QLabel,
    QStyleOptionComboBox,
    QVBoxLayout,
    QWidget,
)

from app.util.formatting import number_text
from app.views.ui import theme
from app.views.ui import widgets as w
from app.views.ui.widgets.fields import StillComboBox
from app.views.ui.widgets.numbers import read_number, stepped
from scripts import widget_sheet


@pytest.fixture(autouse=True)
def themed(qapp):
    theme.apply(qapp, "dark")


@pytest.fixture
def show_widget(qtbot):
    """Puts a widget on the screen, and hands it back."""

    def show(widget: QWidget) -> QWidget:
        qtbot.addWidget(widget)
        with qtbot.waitExposed(widget):
            widget.show()
        return widget

    return show


@pytest.fixture
def collect_signal(qtbot):
    """Collects what a signal says."""

    def collect(signal) -> list:
        heard = []
        signal.connect(lambda *values: heard.append(values[0] if values else None))
        return heard

    return collect


def wheel(widget: QWidget, up: bool = True) -> QWheelEvent:
    place = QPointF(widget.rect().center())
    event = QWheelEvent(
        place,
        place,
        QPoint(),
        QPoint(0, 120 if up else -120),
        Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier,
        Qt.ScrollPhase.NoScrollPhase,
        False,
    )
    QApplication.sendEvent(widget, event)
    return event


def ink(widget: QWidget, area: QRect) -> tuple[int, int]:
    """Return how many columns are plain at the left and at the right of an area."""
    image = widget.grab(area).toImage()
    rows = range(8, image.height() - 8)
    plain = [
        len({image.pixel(x, y) for y in rows}) == 1 for x in range(1, image.width() - 1)
    ]
    return plain.index(False), plain[::-1].index(False)


def leave(field: QWidget) -> None:
    QApplication.sendEvent(
        field, QFocusEvent(QFocusEvent.Type.FocusOut, Qt.FocusReason.TabFocusReason)
    )


def ready_run_key(parent: QWidget) -> QAbstractButton:
    deck = w.Transport(parent)
    deck.set_state("ready")
    return deck.button("run")


# all of them


@pytest.mark.parametrize("mode", ("dark", "light"))
@pytest.mark.parametrize("part", widget_sheet.PARTS)
def test_every_part_paints_in_both_themes_without_a_warning(qapp, qtbot, mode, part):
    theme.apply(qapp, mode)
    messages = []
    before = qInstallMessageHandler(lambda kind, context, text: messages.append(text))
    try:
        sheet = widget_sheet.PARTS[part]()
        qtbot.addWidget(sheet)
        sheet.setAttribute(Qt.WidgetAttribute.WA_DontShowOnScreen)
        sheet.show()
        image = widget_sheet.picture(sheet, 1.5).toImage()
    finally:
        qInstallMessageHandler(before)
    assert [m for m in messages if "propagateSizeHints" not in m] == []
    colors = {
        image.pixelColor(x, y).name()
        for x in range(0, image.width(), 3)
        for y in range(0, image.height(), 3)
    }
    assert len(colors) > 4


def test_the_sheet_of_widgets_is_written(qapp, tmp_path):
    out = tmp_path / "gallery.png"
    assert widget_sheet.main([str(out), "--theme", "light"]) == 0
    assert out.stat().st_size > 20_000
    assert widget_sheet.main([str(tmp_path / "no such folder" / "x.png")]) == 1


def test_every_button_has_a_name_for_a_screen_reader(qtbot):
    for make in widget_sheet.PARTS.values():
        part = make()
        qtbot.addWidget(part)
        for button in part.findChildren(QAbstractButton):
            if type(button).__module__.startswith("app.") and not button.isHidden():
                named = (
                    button.accessibleName()
                    or button.text()
                    or isinstance(button, w.Toggle)
                )
                assert named, button


@pytest.mark.parametrize(
    "make",
    (lambda p: w.Button("Run", parent=p), lambda p: w.Toggle("On", p), ready_run_key),
)
def test_the_ring_is_for_the_keyboard(show_widget, qtbot, make):
    host = QWidget()
    widget = make(host)
    show_widget(host)
    host.activateWindow()
    qtbot.waitUntil(host.isActiveWindow)
    widget.setFocus(Qt.FocusReason.MouseFocusReason)
    assert not widget.shows_ring()
    widget.clearFocus()
    widget.setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.waitUntil(widget.shows_ring)


# buttons


def test_button_kinds(qtbot):
    button = w.Button("Insert Flatten", "primary", "add")
    qtbot.addWidget(button)
    plain = w.Button("Insert Flatten")
    qtbot.addWidget(plain)
    assert button.kind == "primary"
    assert button.sizeHint().width() > plain.sizeHint().width()
    assert button.sizeHint().height() == 26
    with pytest.raises(ValueError, match="secondary, primary, flat, link"):
        button.set_kind("huge")


def test_toggle(show_widget, qtbot, collect_signal):
    toggle = show_widget(w.Toggle("bias"))
    heard = collect_signal(toggle.edited)
    toggle.set_value(True)
    assert heard == []
    qtbot.keyClick(toggle, Qt.Key.Key_Space)
    qtbot.mouseClick(toggle, Qt.MouseButton.LeftButton)
    assert heard == [False, True]
    toggle.set_invalid("bias has no effect")
    assert toggle.toolTip() == "bias has no effect"


def test_segmented_moves_with_arrows(show_widget, qtbot, collect_signal):
    choice = show_widget(w.Segmented(("Shapes", ("grad", "Gradients"), "Memory")))
    heard = collect_signal(choice.changed)
    assert choice.value() == "Shapes"
    first = choice.findChildren(QAbstractButton)[0]
    first.setFocus()
    qtbot.keyClick(first, Qt.Key.Key_Right)
    assert choice.value() == "grad" and heard == ["grad"]
    choice.set_value("Memory")
    assert heard == ["grad", "Memory"]
    with pytest.raises(KeyError):
        choice.set_value("Bytes")


def test_chip_sizes_to_its_text_and_tells_its_state(qtbot):
    chip = w.ShapeChip("N×32×26×26")
    qtbot.addWidget(chip)
    narrow = chip.sizeHint().width()
    chip.set("N×32×26×26×128", "assumed")
    assert chip.sizeHint().width() > narrow and chip.sizeHint().height() == 18
    assert chip.accessibleName() == "N×32×26×26×128, assumed"
    with pytest.raises(KeyError):
        chip.set("N", "wrong")


# panels


def test_section_folds_by_mouse_and_keyboard(show_widget, qtbot, collect_signal):
    section = w.Section("Parameters", "4 of 9")
    body = QLabel("inside")
    section.set_body(body)
    show_widget(section)
    heard = collect_signal(section.toggled)
    header = section.findChildren(QAbstractButton)[0]
    qtbot.mouseClick(header, Qt.MouseButton.LeftButton)
    assert not section.is_open() and not body.isVisible()
    qtbot.keyClick(header, Qt.Key.Key_Right)
    assert section.is_open() and body.isVisible()
    qtbot.keyClick(header, Qt.Key.Key_Left)
    assert heard == [False, True, False]
    assert (section.title(), section.caption()) == ("Parameters", "4 of 9")


def test_the_action_of_a_section_has_its_font_from_the_first(show_widget):
    section = w.Section("Parameters")
    section.set_action("Reset to defaults", quiet=True)
    show_widget(section)
    assert section._action.font() == theme.font("caption")


def test_section_action(show_widget, qtbot):
    section = show_widget(w.Section("Documentation"))
    section.set_action("Open")
    link = next(b for b in section.findChildren(w.Button) if b.text() == "Open")
    with qtbot.waitSignal(section.acted):
        qtbot.mouseClick(link, Qt.MouseButton.LeftButton)
    section.set_action("")
    assert not link.isVisible()


def test_search_clears_with_escape(show_widget, qtbot):
    field = show_widget(w.SearchField("Search layers", "Tab"))
    assert (field.placeholderText(), field.hint(), field.height()) == (
        "Search layers",
        "Tab",
        28,
    )
    qtbot.keyClicks(field, "conv")
    room = field.textMargins().right()
    assert field.text() == "conv" and room == 0
    qtbot.keyClick(field, Qt.Key.Key_Escape)
    assert field.text() == "" and field.textMargins().right() > 0


def test_tabs_know_keys_and_counts(show_widget, qtbot, collect_signal):
    tabs = w.ToolTabs(central=True)
    for key in ("network", "autograd", "code"):
        tabs.add(key, key.title(), key)
    show_widget(tabs)
    heard = collect_signal(tabs.selected)
    width = tabs.tabRect(0).width()
    tabs.set_badge("network", 12)
    qtbot.waitUntil(lambda: tabs.tabRect(0).width() > width)
    assert tabs.accessibleTabName(0) == "Network, 12"
    wide = tabs.tabRect(0).width()
    tabs.set_badge("network", 0)
    assert tabs.tabRect(0).width() == wide and tabs.accessibleTabName(0) == "Network", (
        "no other tab moves back"
    )
    left, right = ink(tabs, tabs.tabRect(0))
    assert abs(left - right) <= 2, (
        "no empty place for a badge: the name is in the middle"
    )
    tabs.set_value("code")
    qtbot.keyClick(tabs, Qt.Key.Key_Left)
    assert heard == ["code", "autograd"] and tabs.value() == "autograd"
    with pytest.raises(KeyError, match="tensor"):
        tabs.set_badge("tensor", 1)


def test_no_tab_is_hidden_for_want_of_room(show_widget, qtbot, collect_signal):
    tabs = w.ToolTabs()
    keys = ("network", "autograd", "code", "runs", "console", "flask")
    for key in keys:
        tabs.add(key, f"{key.title()} of the net", key)
    tabs.resize(1600, tabs.height())
    show_widget(tabs)
    full = [tabs.tabRect(index).width() for index in range(len(keys))]
    assert sum(full) == tabs.sizeHint().width(), "it asks for room for all words"
    tabs.resize(sum(full) - 30, tabs.height())
    qtbot.waitUntil(lambda: tabs.tabRect(len(keys) - 1).right() < tabs.width())
    assert not any(map(tabs.tabToolTip, range(len(keys)))), (
        "they lose their icons before any loses its name"
    )
    tabs.resize(420, tabs.height())
    qtbot.waitUntil(lambda: tabs.tabRect(len(keys) - 1).right() < tabs.width())
    narrow = [tabs.tabRect(index).width() for index in range(len(keys))]
    assert sum(full) == tabs.sizeHint().width(), (
        "and goes on asking, or it would never have it again"
    )
    assert narrow[0] == full[0], "as many as there is room for keep their words"
    assert tabs.tabToolTip(5) == "Flask of the net" and not tabs.tabToolTip(0)
    heard = collect_signal(tabs.selected)
    qtbot.mouseClick(tabs, Qt.MouseButton.LeftButton, pos=tabs.tabRect(5).center())
    assert heard == ["flask"] and tabs.tabToolTip(5) == "Flask of the net"
    assert [tabs.tabRect(index).width() for index in range(len(keys))] == narrow, (
        "none moves"
    )
    tabs.resize(1600, tabs.height())
    qtbot.waitUntil(
        lambda: [tabs.tabRect(index).width() for index in range(len(keys))] == full
    )


def test_heatbar_prints_its_bounds(qtbot):
    bar = w.HeatBar(("0.01", "10"), "Gradient norm")
    qtbot.addWidget(bar)
    assert (
        bar.bounds() == ("0.01", "10")
        and bar.accessibleName() == "Gradient norm 0.01 to 10"
    )
    standing = w.HeatBar(("0.01", "0.1", "1", "10"), vertical=True)
    qtbot.addWidget(standing)
    standing.resize(standing.sizeHint())
    standing.grab()
    with pytest.raises(ValueError):
        bar.set(("0.01",))


def test_empty_state_offers_the_next_step(show_widget, qtbot):
    empty = show_widget(
        w.EmptyState("add", "Nothing here", "Drag a layer here.", "Open the example")
    )
    assert (
        empty.title() == "Nothing here"
        and empty.accessibleDescription() == "Drag a layer here."
    )
    with qtbot.waitSignal(empty.acted):
        qtbot.mouseClick(empty.button, Qt.MouseButton.LeftButton)


@pytest.mark.parametrize("height", [230, 330])
def test_an_empty_state_is_whole_where_there_is_little_room(show_widget, qtbot, height):
    host = show_widget(QWidget())
    hint = "A hint of some length. " * 10
    empty = w.EmptyState("add", "Nothing here", hint, "Open", host)
    empty.set_first("Start")
    empty.setGeometry(0, 0, 520, height)
    empty.show()
    qtbot.waitUntil(lambda: empty._title.y() > 0)
    assert empty._art.isVisible() == (height == 330)
    for part in (empty._title, empty._hint, empty.first, empty.button):
        assert empty.rect().contains(part.geometry()), part
    assert empty._title.y() < empty._hint.y() < empty.first.y() < empty.button.y()


# decks


@pytest.mark.parametrize(
    ("state", "can"),
    [
        ("blocked", set()),
        ("ready", {"run", "step"}),
        ("running", {"pause", "stop"}),
        ("paused", {"run", "step", "stop"}),
    ],
)
def test_transport_states(qtbot, state, can):
    deck = w.Transport()
    qtbot.addWidget(deck)
    deck.set_state(state, "Fix 1 error to run")
    for name in ("run", "pause", "step", "stop"):
        assert deck.button(name).isEnabled() == (name in can)
        assert ("Fix 1 error" in deck.button(name).toolTip()) == (name not in can)
    with pytest.raises(KeyError):
        deck.set_state("rewinding")


def test_transport_signals_and_arrows(show_widget, qtbot):
    deck = show_widget(w.Transport())
    deck.set_state("paused")
    with qtbot.waitSignals([deck.run, deck.step, deck.stop]):
        for name in ("run", "step", "stop"):
            qtbot.mouseClick(deck.button(name), Qt.MouseButton.LeftButton)
    deck.button("run").setFocus()
    qtbot.keyClick(deck.button("run"), Qt.Key.Key_Right)
    assert deck.focusWidget() is deck.button("step"), (
        "pause cannot be pressed and is passed over"
    )
    with qtbot.waitSignal(deck.step):
        qtbot.keyClick(deck.button("step"), Qt.Key.Key_Return)
    assert deck.height() == 36 and deck.sizeHint().width() >= 4 * 42


def test_backward_transport(show_widget, qtbot):
    deck = show_widget(w.BackwardTransport())
    deck.set_state("ready")
    signals = [deck.to_start, deck.step_back, deck.step, deck.run, deck.to_end]
    with qtbot.waitSignals(signals, order="strict"):
        for name in ("to_start", "step_back", "step", "run", "to_end"):
            qtbot.mouseClick(deck.button(name), Qt.MouseButton.LeftButton)
    assert deck.height() == 28


def test_counter_shows_what_it_is_told(show_widget):
    counter = show_widget(w.Counter())
    counter.set_fields((("Epoch", "3/10"), ("Loss", "0.0541")))
    width = counter.minimumSizeHint().width()
    counter.set_fields((("Epoch", "3/10"), ("Loss", "0.05")))
    assert counter.minimumSizeHint().width() == width, (
        "a shorter figure does not make the others jump"
    )
    assert counter.fields() == (("Epoch", "3/10"), ("Loss", "0.05"))
    assert counter.accessibleDescription() == "Epoch 3/10, Loss 0.05"
    counter.set_message("Fix 1 error to run", "error", "error")
    assert (
        counter.message() == counter.toolTip().splitlines()[0] == "Fix 1 error to run"
    )
    for done, epochs in ((2.44, 10), (150.0, 200), (0.0, 0), (9.0, 3)):
        counter.set_progress(done, epochs)
        counter.grab()


def test_a_counter_that_is_narrow_drops_its_reels_before_a_figure_and_tells_those_that_have_no_room(
    show_widget,
):
    counter = show_widget(w.Counter(spare=("Samples/s", "Batch")))
    counter.reserve(["Stopped"])
    values = {
        "Epoch": "12/12",
        "Batch": "23/23",
        "Samples/s": "1,640",
        "Loss": "0.160",
        "ETA": "1:23",
    }
    counter.set_fields(values.items())

    def shown():
        return [counter.fields()[place][0] for place in counter._fitting]

    counter.resize(460, counter.height())
    assert counter._has_reels and shown() == [*values] and counter.toolTip() == ""
    counter.resize(330, counter.height())
    assert not counter._has_reels and shown() == [*values], (
        "of a run in progress all of them"
    )
    counter.set_message("Stopped", "stop")
    assert shown() == ["Epoch", "Batch", "Loss", "ETA"]
    assert counter.toolTip() == "Stopped\nSamples/s 1,640"
    counter.set_note("Measuring takes little.")
    counter.set_fields({**values, "Samples/s": "1,200"}.items())
    assert counter.toolTip().splitlines()[1:] == [
        "Samples/s 1,200",
        "Measuring takes little.",
    ]
    counter.set_message("")
    assert shown() == [*values]


def test_reels_turn_with_batches_and_stand_still_when_asked(qtbot, monkeypatch):
    now = 100.0
    monkeypatch.setattr("app.views.ui.widgets.counter.time.monotonic", lambda: now)
    counter = w.Counter()
    qtbot.addWidget(counter)
    counter.turn(0)
    now += 0.1
    counter.turn(10_000)
    assert counter.angle() == pytest.approx(0.1), "never more than one turn a second"
    now += 10
    counter.turn(2)
    assert counter.angle() == pytest.approx(0.35), "a slow run turns by its batches"
    theme.manager().set_reduced_motion(True)
    try:
        now += 1
        counter.turn(2)
        assert counter.angle() == pytest.approx(0.35)
    finally:
        theme.manager().set_reduced_motion(False)


# messages


def test_banner(show_widget, qtbot, collect_signal):
    banner = show_widget(
        w.Banner("error", "Training stopped", "The loss became NaN.", "Show fc1")
    )
    show = next(b for b in banner.findChildren(w.Button) if b.text() == "Show fc1")
    with qtbot.waitSignal(banner.acted):
        qtbot.mouseClick(show, Qt.MouseButton.LeftButton)
    banner.set("warning", "Memory is nearly full")
    assert (banner.kind(), banner.reason(), show.isVisible()) == ("warning", "", False)
    assert banner.accessibleName() == "warning: Memory is nearly full"
    heard = collect_signal(banner.closed)
    qtbot.keyClick(banner, Qt.Key.Key_Escape)
    assert not banner.isVisible() and len(heard) == 1


def test_banner_takes_text_as_text(show_widget):
    banner = show_widget(w.Banner("info", "<b>conv1</b> & x"))
    assert banner.findChildren(QLabel)[0].textFormat() == Qt.TextFormat.PlainText


def test_toasts_stand_at_the_bottom_right_and_go(show_widget, qtbot):
    host = QWidget()
    host.resize(640, 480)
    show_widget(host)
    stack = w.ToastStack(host)
    done = []
    first = stack.show(
        "Flatten inserted",
        "fc1 gets 9216 features",
        action="Undo",
        on_action=lambda: done.append(1),
    )
    second = stack.show("Saved net.py", seconds=0.03)
    assert first.geometry().right() == second.geometry().right() == 640 - 16 - 1
    assert (
        first.geometry().bottom() < second.geometry().top()
        and second.geometry().bottom() == 480 - 16 - 1
    )
    host.resize(700, 500)
    assert second.geometry().bottom() == 500 - 16 - 1
    qtbot.waitUntil(lambda: stack.toasts() == (first,))
    qtbot.mouseClick(first.button, Qt.MouseButton.LeftButton)
    assert done == [1] and stack.toasts() == ()


def test_a_toast_grows_with_its_text(show_widget, qtbot):
    host = QWidget()
    host.resize(640, 480)
    show_widget(host)
    toast = w.ToastStack(host).show(
        "Stopped at step 7", "It is saved and can be resumed under Runs of digits."
    )
    before = toast.height()
    theme.manager().set_scale(1.5)
    try:
        qtbot.waitUntil(lambda: toast.height() > before)
        assert toast.height() >= toast.heightForWidth(toast.width())
    finally:
        theme.manager().set_scale(1.0)


def test_a_toast_stays_under_the_mouse(show_widget, qtbot, monkeypatch):
    host = QWidget()
    host.resize(640, 480)
    show_widget(host)
    stack = w.ToastStack(host)
    toast = stack.show("Saved", seconds=0.02)
    hovered = True
    asked = []
    monkeypatch.setattr(toast, "underMouse", lambda: bool(asked.append(1) or hovered))
    qtbot.waitUntil(lambda: len(asked) >= 2)
    assert stack.toasts() == (toast,)
    hovered = False
    qtbot.waitUntil(lambda: stack.toasts() == ())


def test_no_more_than_four_toasts(show_widget):
    host = QWidget()
    host.resize(640, 480)
    show_widget(host)
    stack = w.ToastStack(host)
    for i in range(6):
        stack.show(f"Message {i}")
    assert [t.text() for t in stack.toasts()] == [f"Message {i}" for i in range(2, 6)]
    stack.clear()
    assert stack.toasts() == ()


# fields


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("64", "int", 64),
        (" −3 ", "int", -3),
        ("1e-3", "float", 0.001),
        ("1e−3", "float", 0.001),
        ("2", "float", 2.0),
    ],
)
def test_numbers_are_read(text, kind, value):
    assert read_number(text, kind) == value and type(read_number(text, kind)) is type(
        value
    )


@pytest.mark.parametrize(
    ("text", "kind"),
    [("", "int"), ("1.5", "int"), ("x", "float"), ("nan", "float"), ("None", "int")],
)
def test_what_is_no_number_is_refused(text, kind):
    with pytest.raises(ValueError, match="such as"):
        read_number(text, kind)


@pytest.mark.parametrize("value", [0, -17, 0.1, -2.5e-8, 1e22, 123456.789, None])
def test_a_shown_number_reads_back(value):
    kind = "float" if isinstance(value, float) else "int"
    assert read_number(number_text(value), kind, optional=True) == value


@pytest.mark.parametrize(
    ("value", "steps", "result"),
    [
        (3, 1, 4),
        (3, -10, -7),
        (0.001, 1, 0.002),
        (0.001, -1, 0.0009),
        (0.9, 1, 1.0),
        (1.0, -1, 0.9),
        (-0.1, 1, -0.09),
    ],
)
def test_steps(value, steps, result):
    assert stepped(value, steps) == result


def test_number_field_tells_what_is_committed(show_widget, qtbot, collect_signal):
    field = show_widget(w.NumberField(64, minimum=1, maximum=4096))
    heard = collect_signal(field.edited)
    field.selectAll()
    qtbot.keyClicks(field, "128")
    assert heard == [] and field.value() == 64
    qtbot.keyClick(field, Qt.Key.Key_Return)
    assert heard == [128] and field.value() == 128
    qtbot.keyClick(field, Qt.Key.Key_Up)
    qtbot.keyClick(field, Qt.Key.Key_PageDown)
    assert heard[1:] == [129, 119]
    field.set_value(7)
    assert len(heard) == 3 and field.text() == "7"


def test_number_field_marks_and_rejects(show_widget, qtbot, collect_signal):
    field = show_widget(w.NumberField(64, minimum=1))
    heard, refused = collect_signal(field.edited), collect_signal(field.rejected)
    field.selectAll()
    qtbot.keyClicks(field, "-1")
    assert (
        field.invalid() == "At least 1." == field.toolTip()
        and field.property("invalid") is True
    )
    leave(field)
    assert (
        refused == ["At least 1."] and field.text() == "64" and field.invalid() is None
    )
    assert 64 not in heard and field.value() == 64
    field.selectAll()
    qtbot.keyClicks(field, "x")
    qtbot.keyClick(field, Qt.Key.Key_Escape)
    assert field.text() == "64" and field.invalid() is None and len(refused) == 1
    qtbot.keyClicks(field, "5")
    qtbot.keyClick(field, Qt.Key.Key_Escape)
    assert field.text() == "64" and not heard, "a valid number is restored too"


def test_number_field_is_not_turned_in_passing(show_widget, qtbot, collect_signal):
    field = w.NumberField(3)
    other = w.NumberField(5)
    both = QWidget()
    layout = QVBoxLayout(both)
    layout.addWidget(field)
    layout.addWidget(other)
    show_widget(both)
    both.activateWindow()
    other.setFocus()
    qtbot.waitUntil(other.hasFocus)
    assert not wheel(field).isAccepted() and field.value() == 3
    assert not wheel(other).isAccepted() and other.value() == 5, "it was not clicked"
    qtbot.mouseClick(other, Qt.MouseButton.LeftButton, pos=QPoint(5, 10))
    assert wheel(other).isAccepted() and other.value() == 6
    qtbot.keyClick(other, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    qtbot.keyClicks(other, "22")
    qtbot.keyClick(other, Qt.Key.Key_F5)
    assert not wheel(other).isAccepted() and other.value() == 22, (
        "a run was begun from it, and the form is scrolled"
    )
    qtbot.mouseClick(other, Qt.MouseButton.LeftButton, pos=QPoint(5, 10))
    QApplication.sendEvent(other, QEvent(QEvent.Type.Leave))
    assert not wheel(other).isAccepted() and other.value() == 22, (
        "the pointer went elsewhere and came back"
    )


def test_choices_are_not_turned_in_passing(show_widget, qtbot):
    field = show_widget(w.ChoiceField(["a", "b", "c"], "b"))
    field.setFocus()
    qtbot.waitUntil(field.hasFocus)
    assert not wheel(field).isAccepted() and field.value() == "b"
    still = show_widget(StillComboBox())
    still.addItems(["a", "b"])
    still.setFocus()
    assert not wheel(still, up=False).isAccepted() and still.currentText() == "a"


def test_number_field_arrows(show_widget, qtbot, collect_signal):
    field = show_widget(w.NumberField(2, minimum=1))
    heard = collect_signal(field.edited)
    x = field.width() - 6
    for y in (5, field.height() - 5, field.height() - 5, field.height() - 5):
        qtbot.mouseClick(field, Qt.MouseButton.LeftButton, pos=QPoint(x, y))
    assert heard == [3, 2, 1], "the arrows stop at the bound"


def test_a_linked_field_cannot_be_typed(show_widget, qtbot):
    field = show_widget(w.NumberField(32))
    field.set_linked(True)
    qtbot.keyClicks(field, "5")
    qtbot.keyClick(field, Qt.Key.Key_Up)
    assert field.value() == 32 and field.isReadOnly()


def test_typing_is_not_disturbed_by_the_answer(show_widget, qtbot):
    field = show_widget(w.NumberField(0.5, "float"))
    field.window().activateWindow()
    field.setFocus()
    qtbot.waitUntil(field.hasFocus)
    field.edited.connect(
        field.set_value
    )  # as a view does that shows what the document says
    field.selectAll()
    qtbot.keyClicks(field, "1.0")
    assert field.text() == "1.0"
    field.set_value(0.5)  # a late answer
    qtbot.keyClicks(field, "5")
    assert (
        field.text() == "1.05" and field.cursorPosition() == 4 and field.value() == 0.5
    )
    qtbot.keyClick(field, Qt.Key.Key_Return)
    assert field.value() == 1.05


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (lambda: w.NumberField(1), 3),
        (lambda: w.NumbersField(2, 1), (3, 4)),
        (lambda: w.NumbersField(0, (1,)), (3, 4, 5)),
        (lambda: w.ChoiceField(("zeros", "circular")), "circular"),
        (lambda: w.TextField(), "slice(None)"),
        (lambda: w.Toggle(), True),
    ],
)
def test_all_fields_speak_alike(qtbot, collect_signal, field, value):
    field = field()
    qtbot.addWidget(field)
    heard = collect_signal(field.edited)
    field.set_value(value)
    assert field.value() == value and heard == []
    field.set_invalid("Does not fit.")
    target = field.fields()[0] if isinstance(field, w.NumbersField) else field
    assert target.toolTip() == "Does not fit."
    field.set_invalid(None)
    assert target.toolTip() == ""


def test_numbers_collapse_to_one(show_widget, qtbot, collect_signal):
    field = show_widget(w.NumbersField(2, 3, minimum=1))
    heard = collect_signal(field.edited)
    assert field.value() == 3 and [f.value() for f in field.fields()] == [3, 3]
    first, second = field.fields()
    qtbot.keyClick(first, Qt.Key.Key_Up)
    qtbot.keyClick(second, Qt.Key.Key_Up)
    qtbot.keyClick(first, Qt.Key.Key_Up)
    assert heard == [4, (4, 5), 5], "the first sets both while they are equal"
    field.set_value((5, 5))
    assert field.value() == (5, 5), "what was set is given back as it was set"
    with pytest.raises(ValueError):
        field.set_value((1, 2, 3))


def test_numbers_of_any_length(show_widget, qtbot, collect_signal):
    field = show_widget(w.NumbersField(0, (64,)))
    heard = collect_signal(field.edited)
    entry = field.fields()[0]
    assert entry.text() == "64"
    entry.selectAll()
    qtbot.keyClicks(entry, "64, 12, 12")
    leave(entry)
    assert heard == [(64, 12, 12)]
    assert entry.text() == "64 × 12 × 12"


def test_choice_field(show_widget, qtbot, collect_signal):
    field = show_widget(
        w.ChoiceField(((None, "none"), (1, "one"), (True, "yes")), pairs=True, value=1)
    )
    heard = collect_signal(field.edited)
    assert field.value() == 1 and field.currentText() == "one"
    qtbot.keyClick(field, Qt.Key.Key_Down)
    assert heard == [True], "True is not 1"
    field.set_value("bilinear")
    assert field.value() == "bilinear" and "not one of" in field.invalid()
    field.set_value(None)
    assert field.invalid() is None and field.currentText() == "none"


def test_a_choice_is_whole_wherever_it_has_room_beside_its_arrow(show_widget):
    field = show_widget(w.ChoiceField(["left out", "input"], "left out"))
    arrow, around = 22, 20  # px
    field.setFixedWidth(
        field.fontMetrics().horizontalAdvance("left out") + arrow + around
    )
    option = QStyleOptionComboBox()
    field.initStyleOption(option)
    assert option.currentText == "left out"


def test_text_field_parses(show_widget, qtbot, collect_signal):
    def parse(text: str) -> tuple:
        if not text.endswith(")"):
            raise ValueError("Close the bracket.")
        return (text,)

    field = show_widget(w.TextField(("a)",), parse, lambda v: v[0]))
    heard, refused = collect_signal(field.edited), collect_signal(field.rejected)
    field.selectAll()
    qtbot.keyClicks(field, "b")
    assert field.invalid() == "Close the bracket." and heard == []
    qtbot.keyClicks(field, ")")
    qtbot.keyClick(field, Qt.Key.Key_Return)
    assert heard == [("b)",)] and refused == []
