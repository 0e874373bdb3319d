"""One window for the tests that do not test its beginning or end: to make one takes longer than most of them.

Between two tests it is put back; then it must look as it did before the first, to the last widget, action and flag of
its controls. If it does not, or was closed, the next test gets another one.
"""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import shiboken6
from PySide6.QtCore import QEvent, QMetaMethod, QObject
from PySide6.QtGui import QAction
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractSlider,
    QApplication,
    QComboBox,
    QDialog,
    QLabel,
    QLineEdit,
    QMenu,
    QPlainTextEdit,
    QStackedWidget,
    QWidget,
)
from pytestqt.qtbot import QtBot

from app.views.autograd.findings.findings_page import BATCH, FINDINGS
from app.views.navigation import NETWORK
from app.views.settings import Settings
from app.views.shell.feature import ShellFeature
from app.views.ui import theme
from app.views.ui.widgets.focus import take_typed
from tests.support.whole_window import WholeWindow
from tests.support.windows import leave

SIZE = (1280, 800)
PLAIN = (type(None), bool, int, str, enum.Enum)
# What is filled anew, from the project alone, before anybody sees it; and whose pages are, but for the one in front.
ANEW = {
    "NodePage",
    "CanvasView",
    "TapeView",
    "TypingEdit",
    "Scales",
    "QListView",
    "AutogradHeader",
    "CostTable",
    "CodeView",
    "TapePage",
    "HistogramChart",
    "Outline",
    "ObservedPage",
    "LessonView",
    "DiffPage",
}
FITTED = {"_Art"}  # there where it has room, which is measured as its page is shown
# What features remember of what they were asked for last.
ASKED = {
    "ObservedFeature": ("_model", "_digest", "_opened"),
    "LayerFeature": ("_wanted",),
}
ALONE = {"AutogradPage", "FindingsPage"}
# What was done before, which no test hears of.
COUNTS = {
    "memory_control.estimates",
    "run_control._drawn",
    "export_control._copies",
    "live._look",
    "library_control._said",
    "cost_control._retries",
    "diff_control._replaced",
    "diff_control._generation",
    "diff_control._sides",
    "autograd_control.shows_step",
    "recompute_control._page",
    "RunFeature._said",
    "control._answers",  # of a lesson, which begins with those of its own
    "control._reached",
    "control._student",
    "CoachFeature._done",  # of a run; the next begins with none
}
# What stays of the first import that is compared with its model, and of the first screen reader: once in each window.
ONCE = [
    {
        "/QWidget 1/Banner 3",
        ".document.replaced(PyObject)",
        "document.replaced(PyObject)",
        "sheet.whole.replaced(PyObject)",
        "toasts._banners",
    },
    {".selection.changed(PyObject,PyObject)", "selection.changed(PyObject,PyObject)"},
]
TURNS, TURN = (
    6,
    60,
)  # so many, of so many milliseconds; another window takes seconds to make


class SharedWindow:
    """The window that is lent to one test after the other, if there is one at the moment."""

    def __init__(self) -> None:
        self.window: WholeWindow | None = None
        self.changed: set[str] = (
            set()
        )  # what was not as before when the last one was dropped for it
        self._look: dict[str, Any] = {}
        self._once: list[set[str]] = []
        self._docks: Any = None
        self._laid_out: Any = None  # what it tells of its docks once they were put back
        self._focus: Any = None

    def lend(self, qtbot: QtBot, qapp: QApplication) -> WholeWindow:
        """A window with all its pages, with an empty project and with torch behind it."""
        if self.window is not None:
            self._put_back(qtbot, self.window)
            if not self._is_as_before(qtbot, self.window):
                self.drop()
        if self.window is None:
            self._make(qtbot, qapp)
        assert self.window is not None
        return self.window

    def take_back(self) -> None:
        """After a test: nothing goes on."""
        window = self.window
        if window is not None:
            window.session.close_and_wait()
            window.document.undo_stack.setClean()
            if not window.isVisible():  # it was closed
                self.drop()

    def drop(self) -> None:
        window, self.window = self.window, None
        if window is not None:
            window.session.close_and_wait()
            take_typed(window)  # else it is an edit as the window closes, which asks
            window.document.undo_stack.setClean()
            leave(window)

    def _make(self, qtbot: QtBot, qapp: QApplication) -> None:
        if not qapp.styleSheet() or theme.current().name != "dark":
            theme.apply(qapp, "dark")
        window = WholeWindow(Settings("TapedeckTest", "shared"))
        window.resize(*SIZE)
        window.show()
        self._docks, self._laid_out = window.saveState(), None
        window.files.open_example("digits.tape")
        window.start()
        qtbot.waitUntil(lambda: at_rest(window) and window.focusWidget() is not None)
        window.furnish()  # those on demand too
        self.window, self._focus = window, window.focusWidget()
        self._put_back(qtbot, window)
        self._look, self._once = look(window), list(ONCE)

    def _is_as_before(self, qtbot: QtBot, window: WholeWindow) -> bool:
        """Whether it looks as it did, some turns of the event loop later at most: what was to come comes then."""
        for _ in range(TURNS):
            now = look(window)
            changed = {
                name
                for name in self._look.keys() | now.keys()
                if self._look.get(name) != now.get(name)
            }
            new = [once for once in self._once if once & changed]
            if changed <= set[str]().union(*new):
                self._once = [once for once in self._once if once not in new]
                self._look = now
                return True
            qtbot.wait(TURN)
            window.toasts.clear()
            QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        self.changed = changed
        return False

    def _put_back(self, qtbot: QtBot, window: WholeWindow) -> None:
        window.setUpdatesEnabled(False)  # nobody looks at it meanwhile
        for dialog in window.findChildren(QDialog):
            dialog.close()
            dialog.deleteLater()
        window.toasts.__dict__.pop("show", None)  # of `windows.messages`
        window.settings._store.clear()
        shell = window.findChild(ShellFeature)
        shell.appearance.take_settings()
        window.actions_by_key["launch-blocking"].setChecked(False)
        window.actions_by_key["place.own"].trigger()
        _forget_runs(window)
        if hasattr(window, "interpreted"):
            window.interpreted.view.set_value("attention")
        take_typed(window)
        window.document.new()
        window.settings._store.remove(
            "files/views"
        )  # of the project that was left: the next test opens it, too
        _forget_model(window)
        _forget_snippet(window)
        _forget_lesson(window)
        window.place.go_to(NETWORK)
        window.selection.set(())
        if hasattr(window, "console"):
            window.console.log("")  # else the first run brings its list
            window.console.clear()
        window.status.set_compute("")
        if hasattr(window, "evaluation"):
            window.evaluation.trying.clear.click()
            window.evaluation.view.set_value("results")
            window.evaluation.part.set_value("validation")
        window.findings_control.page.over.set_value(BATCH)
        window.findings_control.page.turn_to(FINDINGS)
        window.overlay.set_value("Shapes")
        if window.notifier._further:
            window.notifier.show("info", "", "")  # without the buttons of the last one
        window.banner.hide()
        window.toasts.clear()
        for word in window.canvas.findChildren(QWidget, "canvasWord"):
            word.hide()
        window.resize(*SIZE)
        for pane, page in (
            (window.bottom.pane, window.bottom.pane._keys[0]),
            (window.left.pane, "layers"),
            (window.right.pane, "inspector"),
            (window.centre, "network"),
        ):
            pane.show_page(page)
        window.bottom.pane._scale = 0.0  # the controls of the curves grow with a run, and their row keeps that room
        window.bottom.pane._fit()
        moved = window.saveState() != self._laid_out
        if moved:  # to lay all docks out takes longer than the rest
            window.restoreState(self._docks)
        window.activateWindow()
        self._focus.setFocus()
        qtbot.waitUntil(lambda: at_rest(window) and window.isActiveWindow())
        if window.shown_run.figures is not None:  # of a run that was listed meanwhile
            window.shown_run.show(None)
        QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        if moved:
            self._laid_out = window.saveState()
        window.setUpdatesEnabled(True)


def _forget_runs(window: WholeWindow) -> None:
    """As if none had been started, of which something is said, and no script been watched, whose step is offered."""
    session = window.session
    session.runs.clear()
    session._count = 0
    if session._thread is not None and session._thread.isFinished():
        session._thread.deleteLater()
        session._thread = None
        session.commandsChanged.emit()
    for feature in window.features:
        if type(feature).__name__ == "CoachFeature" and feature.remark is not None:
            feature._run = feature.remark = None
            feature._show()


def _forget_model(window: WholeWindow) -> None:
    """As if none had been opened or compared, and no step of a script been captured; no command does that."""
    if hasattr(window, "diff"):
        page = window.diff
        page.compared = None
        page.banner.hide()
        page.which.set_value("layers")
        page._stack.setCurrentWidget(page.empty)
    if window.autograd_control.subject != "net":
        window.graphs.show("net")
    if hasattr(window, "observed"):
        window.observed.observation = None
    for feature in window.features:
        for name in ASKED.get(type(feature).__name__, ()):
            vars(feature).pop(name, None)


def _forget_snippet(window: WholeWindow) -> None:
    """As if none had been looked at: its page and that of its findings are made when they are."""
    control = getattr(window, "snippets", None)
    if control is None or control._page is None:
        return
    control.close()
    window.graphs.show("net")
    for page in (control._page, vars(window.snippet_findings).pop("page", None)):
        if page is not None:
            page.parentWidget().removeWidget(page)
            page.deleteLater()
    control._page = None
    window.tape_inspector.above.pop()  # its own, the last one


def _forget_lesson(window: WholeWindow) -> None:
    """As if none had been begun."""
    for feature in window.features:
        if type(feature).__name__ == "LessonsFeature" and feature.learn.currentIndex():
            feature.workspace.activity.conceal(frozenset(), frozenset())
            feature.control.list_lessons()


def at_rest(window: WholeWindow) -> bool:
    """Whether all pages are there, styled, and all is known of what is open."""
    return (
        window.furnished
        and window.live.torch is not None
        and window.live.up_to_date
        and not window.background.busy
        and not window.engine.busy
        and not window.hearers.active
    )


def look(window: WholeWindow) -> dict[str, Any]:
    """What is to be seen of a window, and the flags of its controls, by the way that leads there."""
    found: dict[str, Any] = dict(_heard(window))
    for holder in (window, *window.features):
        for name, part in vars(holder).items():
            if isinstance(part, QObject) and not isinstance(part, QWidget):
                _note(f"{name}", part, found)
    for feature in window.features:
        _note(type(feature).__name__, feature, found)
    _widgets("", window, found)
    return found


def _note(name: str, part: QObject, found: dict[str, Any]) -> None:
    """The flags of a control."""
    for key, value in vars(part).items():
        if f"{name}.{key}" in COUNTS:
            continue
        if isinstance(value, PLAIN):
            found[f"{name}.{key}"] = value
        elif isinstance(value, (dict, list, set, frozenset)):
            found[f"{name}.{key}"] = len(value)


def _heard(window: WholeWindow) -> dict[str, int]:
    """How many hear the signals of the lasting parts and of theirs: who stays would be told of the next test."""
    parts = {"": window, **_parts("", window)}
    for name, part in list(parts.items()):
        parts |= _parts(f"{name}.", part)
    return {
        f"{name}.{word}": count
        for name, part in parts.items()
        for word in _signals(type(part))
        if (count := part.receivers(f"2{word}"))
    }


def _parts(way: str, of: QObject) -> dict[str, QObject]:
    return {
        f"{way}{name}": part
        for name, part in vars(of).items()
        if isinstance(part, QObject)
        and type(part).__module__.startswith("app.")
        and shiboken6.isValid(part)
        and not name.startswith("_")
        and type(part).__name__ not in ANEW
    }


@cache
def _signals(kind: type[QObject]) -> tuple[str, ...]:
    meta = kind.staticMetaObject
    methods = (
        meta.method(number) for number in range(meta.methodOffset(), meta.methodCount())
    )
    return tuple(
        one.methodSignature().toStdString()
        for one in methods
        if one.methodType() == QMetaMethod.MethodType.Signal
    )


def _widgets(way: str, widget: QWidget, found: dict[str, Any]) -> None:
    """Of what is hidden only that it is, but for the pages that are not in front."""
    numbers: Counter[str] = Counter()
    for child in _children(widget):
        numbers[kind := child.objectName() or type(child).__name__] += 1
        name = f"{way}/{kind} {numbers[kind]}"
        if isinstance(child, QAction):
            found[name] = (child.text(), child.isEnabled(), child.isChecked())
            continue
        if (
            kind.startswith("qt_scrollarea_")
            or kind in FITTED
            or (isinstance(child, QMenu) and child.isHidden())
        ):
            continue
        found[name] = (hidden := child.isHidden(), child.isEnabled())
        if type(child).__name__ in ANEW or (
            hidden and not isinstance(widget, QStackedWidget)
        ):
            continue
        found[name] += (child.accessibleName(), *_content(child))
        if not isinstance(child, QMenu):
            _widgets(name, child, found)


def _children(widget: QWidget) -> Iterator[Any]:
    if isinstance(widget, QStackedWidget) and type(widget.parent()).__name__ in ALONE:
        yield widget.currentWidget()
    elif isinstance(
        widget, QStackedWidget
    ):  # the one in front is the last of its children
        yield from (widget.widget(number) for number in range(widget.count()))
    else:
        yield from (
            child
            for child in widget.children()
            if isinstance(child, (QWidget, QAction))
        )


def _content(widget: QWidget) -> tuple[Any, ...]:
    if isinstance(widget, QAbstractButton):
        return widget.text(), widget.isChecked()
    if isinstance(widget, (QLabel, QLineEdit)):
        return (
            re.sub(
                r"^Shapes checked in [0-9.]+ ms",
                "Shapes checked in a while",
                widget.text(),
            ),
        )
    if isinstance(widget, QPlainTextEdit):
        return (widget.toPlainText(),)
    if isinstance(widget, QComboBox):
        return widget.currentIndex(), widget.count()
    if isinstance(widget, QStackedWidget):
        return (widget.currentIndex(),)
    if isinstance(widget, QAbstractSlider):
        return (widget.value(),)
    return ()
