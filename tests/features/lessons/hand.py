"""A hand that does lessons in the window: through its actions, its fields and its canvas, as a student does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.builder.edits import edits
from app.features.lessons import lesson as lessons
from app.features.lessons.control import LessonControl
from app.features.lessons.page import GoalRow, LessonView
from tests.support.whole_window import WholeWindow

Key = Qt.Key
Action = Callable[["Hand"], object]


class Hand:
    """A lesson that was begun. `until(condition)` waits, and fails where that takes too long."""

    def __init__(
        self,
        window: WholeWindow,
        until: Callable[[Callable[[], Any]], object],
        name: str,
    ) -> None:
        self.window, self.until = window, until
        (self.feature,) = (
            feature
            for feature in window.features
            if type(feature).__name__ == "LessonsFeature"
        )
        window.actions_by_key["lessons"].trigger()
        (lesson,) = (each for each in lessons.bundled() if each.name == name)
        self.control.begin(lesson)
        assert self.control.lesson == lesson
        self.settle()

    @property
    def control(self) -> LessonControl:
        return self.feature.control

    @property
    def view(self) -> LessonView:
        return self.feature.learn.lesson

    def settle(self) -> None:
        """Wait until nothing goes on: the net is checked, no run and no snippet is under way."""
        window = self.window
        self.until(lambda: window.live.up_to_date and window.furnished)
        self.until(lambda: not window.session.active and not window.snippets.running)

    def judged(self) -> None:
        """Have the goals judged by what there is now."""
        self.settle()
        self.control._judge()

    # --- The page

    def row(self, text: str) -> GoalRow:
        """The goal of the step that has these letters."""
        (row,) = (row for row in self.view.rows if text in row.goal.text)
        return row

    def answer(self, text: str, answer: str) -> None:
        """Type an answer to the question that has these letters."""
        field = self.row(text).field
        assert field is not None
        field.setText(answer)
        field.editingFinished.emit()

    def go_on(self) -> None:
        QTest.mouseClick(self.view.next, Qt.MouseButton.LeftButton)

    @property
    def open(self) -> list[str]:
        """The goals of the step that are not reached."""
        return [row.goal.text for row in self.view.rows if not row.met]

    # --- The window

    def do(self, key: str) -> None:
        """Trigger a command, once it can be."""
        action = self.window.actions_by_key[key]
        self.until(action.isEnabled)
        action.trigger()

    def choose_mode(self, mode: str) -> None:
        """Choose train or eval for the next capture, as the menu Options does."""
        self.window.pages.show("autograd")
        self.window.options_control.menu.mode_chosen.emit(mode)

    def capture(self, mode: str = "capture") -> None:
        """Capture one batch."""
        heard: list[object] = []
        self.window.pages.make("autograd")
        activity = self.control._workspace.activity
        activity.captured.connect(heard.append)
        self.do(mode)
        self.until(lambda: heard)
        activity.captured.disconnect(heard.append)

    def play(self) -> None:
        self.do("play-backward")
        self.until(lambda: self.control.situation.tape.played == 1)

    def find(self) -> None:
        """Run the findings, anew where they ran."""
        heard: list[object] = []
        activity = self.control._workspace.activity
        activity.diagnosed.connect(heard.append)
        self.do("findings")
        self.until(lambda: heard)
        activity.diagnosed.disconnect(heard.append)

    def measure(self, key: str) -> None:
        """Trigger a command that measures, and wait for what it measures."""
        heard: list[object] = []
        activity = self.control._workspace.activity
        activity.measured.connect(lambda *values: heard.append(values))
        self.do(key)
        self.until(lambda: heard)
        self.close_dialogs()

    def close_dialogs(self) -> None:
        while (dialog := QApplication.activeModalWidget()) is not None:
            dialog.close()

    def train(self) -> None:
        """Run to the end."""
        before = self.control.situation.runs
        self.settle()
        self.window.run_control.run()
        self.until(lambda: self.control.situation.runs > before)

    def setting(self, **values: Any) -> None:
        """Other settings of the run."""
        project = self.window.document.project
        training = replace(project.training, **values)
        self.window.document.apply("Change", replace(project, training=training))

    def optimizer(self, **params: float) -> None:
        """Other parameters of the optimizer."""
        optimizer = self.window.document.project.training.optimizer
        self.setting(
            optimizer=replace(optimizer, params=optimizer.params.update(params))
        )

    def node(self, name: str) -> str:
        """The id of a node."""
        nodes = self.window.document.project.graph.nodes.values()
        return next(node.id for node in nodes if node.name == name)

    def param(self, name: str, **params: Any) -> None:
        """Other parameters of a node."""
        project = self.window.document.project
        self.window.document.apply(
            "Change", edits.with_params(project, self.node(name), params)
        )

    def select(self, *names: str) -> None:
        self.window.pages.show("network")
        self.window.selection.set({self.node(name) for name in names})

    def canvas_key(self, key: Key, *names: str) -> None:
        """Press a key on the canvas with these nodes selected."""
        self.select(*names)
        view = self.window.canvas.view
        view.setFocus()
        QTest.keyClick(view, key)

    def flag(self, flag: str, *names: str, on: bool = True) -> None:
        """Freeze or mute nodes, or do so no more."""
        project = self.window.document.project
        nodes = [self.node(name) for name in names]
        self.window.document.apply("Flag", edits.flagged(project, nodes, flag, on))

    def add(self, *typed: str, behind: str = "") -> None:
        """Add nodes by Tab, one behind the other."""
        self.window.pages.show("network")
        if behind:
            self.select(behind)
        canvas = self.window.canvas
        for text in typed:
            canvas.view.setFocus()
            QTest.keyClick(canvas.view, Key.Key_Tab)
            self.until(canvas.search.isVisible)
            QTest.keyClicks(canvas.search.field, text)
            QTest.keyClick(canvas.search.field, Key.Key_Return)

    def remove(self, *names: str) -> None:
        """Delete nodes; their neighbours are connected."""
        project = self.window.document.project
        nodes = [self.node(name) for name in names]
        ops = self.control._workspace.catalog.now
        self.window.document.apply(
            "Delete", edits.delete_and_reconnect(project, ops, nodes)
        )

    def snippet(self, key: str = "") -> None:
        """Run the snippet, after choosing it where a key is given."""
        if key:
            self.window.snippets.open_ready(key)
        self.window.snippets.show()
        before = self.control.situation.snippet
        self.window.snippets.run()
        self.until(lambda: self.control.situation.snippet is not before)

    def write(self, text: str) -> None:
        """Type other lines in place of the snippet's, and run them."""
        self.window.snippets.show()
        self.window.snippets.page.edit.set_text(text)
        self.snippet()

    def change(self, changes: Mapping[str, str]) -> None:
        """Change lines of the snippet, and run it."""
        text = self.window.snippets.page.edit.text()
        for old, new in changes.items():
            assert old in text, old
            text = text.replace(old, new)
        self.write(text)

    def show(self, page: str) -> None:
        """Bring a page to the front."""
        self.window.pages.show(page)

    def ask(self, command: str, text: str) -> None:
        """Trigger a command that asks on the canvas, and answer it."""
        self.window.pages.show("network")
        self.do(command)
        prompt = self.control._workspace.drawing.ask_box
        self.until(prompt.isVisible)
        prompt.field.clear()
        QTest.keyClicks(prompt.field, text)
        QTest.keyClick(prompt.field, Key.Key_Return)
