"""The menu line: every command with its shortcut, and the search over all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QApplication, QHBoxLayout, QMenu, QWidget

from app.builder.edits import alignment
from app.util.resources import path as resource_path
from app.views.actions import Actions
from app.views.export.drawing_control import export_drawing
from app.views.training.runs.placement_control import PlacesControl
from app.views.training.trials.trial_control import TrialControl
from app.views.ui import icons
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.painting import Glyph, label

if TYPE_CHECKING:
    from app.views.main_window import MainWindow

Key = QKeySequence.StandardKey
WAYS = ("left", "right", "up", "down")


def build_menus(window: MainWindow) -> Actions:
    """Fill the menu line; returns the actions by key."""
    actions = Actions(window, window.menuBar())
    _file(window, actions)
    _edit(window, actions)
    _view(window, actions)
    _layer(window, actions)
    _block(window, actions)
    _run(window, actions)
    _autograd(window, actions)
    _help(window, actions)
    window.menuBar().setCornerWidget(_search_field(window, actions["commands"]))
    window.menuBar().setCornerWidget(_brand(window), Qt.Corner.TopLeftCorner)
    return actions


def _brand(window: MainWindow) -> QWidget:
    """The program's mark and name at the head of the menu line."""
    brand = QWidget(window)
    row = QHBoxLayout(brand)
    row.setContentsMargins(12, 0, 10, 0)
    row.setSpacing(8)
    row.addWidget(Glyph("tapedeck", "back", size=18))
    row.addWidget(label("Tapedeck", "section"))
    return brand


def _search_field(window: MainWindow, command: QAction) -> QWidget:
    """Looks like a search field; opens the list of commands."""
    button = Button("Search commands    Ctrl K", "secondary", "search", window)
    button.setFixedHeight(22)
    button.setToolTip("Every command, by name")
    button.clicked.connect(command.trigger)
    holder = QWidget(window)
    row = QHBoxLayout(holder)
    row.setContentsMargins(0, 2, 12, 2)
    row.addWidget(button)
    return holder


def _file(window: MainWindow, actions: Actions) -> None:
    files = window.files
    menu = window.file_menu = actions.menu("&File")
    actions.add(menu, "new", "&New", files.new, Key.New, "new")
    actions.add(menu, "gallery", "New from e&xample…", lambda: _gallery(window), "Ctrl+Alt+N", "network")
    actions.add(menu, "open", "&Open…", files.choose, Key.Open, "folder")
    actions.add(menu, "import", "&Import a model…", lambda: window.import_control.ask(), "Ctrl+Shift+I", "layers")
    recent = menu.addMenu("Open &recent")
    recent.aboutToShow.connect(lambda: _fill_recent(window, recent))
    examples = menu.addMenu("&Examples")
    for path in sorted(resource_path("examples").glob("*.tape"), key=lambda path: path.stem.casefold()):
        action = examples.addAction(path.stem)
        action.triggered.connect(lambda *_, name=path.name: files.open_example(name))
    menu.addSeparator()
    actions.add(menu, "save", "&Save", files.save, Key.Save, "save")
    actions.add(menu, "save-as", "Save &as…", files.save_as, "Ctrl+Shift+S")
    menu.addSeparator()
    weights = window.weights_control
    actions.add(menu, "load-weights", "&Load weights…", weights.ask, "Ctrl+Shift+W", "folder")
    actions.add(menu, "save-weights", "Save &weights…", weights.ask_save)
    menu.addSeparator()
    actions.add(menu, "export", "&Export code and weights…", window.ask_export, "Ctrl+E", "export")
    actions.add(menu, "export-drawing", "Export the dra&wing…", lambda: export_drawing(window), "Ctrl+Shift+E")
    actions.add(menu, "recover", "Reco&ver unsaved work…", lambda: window.recovery.look(asked=True))
    menu.addSeparator()
    actions.add(menu, "quit", "&Quit", window.close, Key.Quit)


def _fill_recent(window: MainWindow, menu: QMenu) -> None:
    menu.clear()
    for path in window.settings.recent_files:
        action = menu.addAction(path.name)
        action.setToolTip(str(path))
        action.triggered.connect(lambda *_, chosen=path: window.files.open_asking(chosen))
    if menu.isEmpty():
        menu.addAction("No project was opened yet").setEnabled(False)


def _edit(window: MainWindow, actions: Actions) -> None:
    menu = actions.menu("&Edit")
    stack = window.document.undo_stack
    undo, redo = stack.createUndoAction(window, "&Undo"), stack.createRedoAction(window, "&Redo")
    undo.setShortcut(QKeySequence("Ctrl+Z"))
    redo.setShortcuts([QKeySequence("Ctrl+Shift+Z"), QKeySequence("Ctrl+Y")])
    undo.setIcon(icons.icon("undo"))
    redo.setIcon(icons.icon("redo"))
    actions.adopt(menu, "undo", undo)
    actions.adopt(menu, "redo", redo)
    menu.addSeparator()
    for key in ("cut", "copy", "paste", "duplicate", "delete", "delete_reconnect", "select_all"):
        _adopt(window, actions, menu, key)
    menu.addSeparator()
    actions.add(menu, "find", "&Find a node…", window.find_node, "Ctrl+Shift+F", "search")


def _adopt(window: MainWindow, actions: Actions, menu: QMenu, key: str) -> None:
    action = window.canvas.actions_by_key.get(key)
    if action is not None:
        actions.adopt(menu, f"canvas.{key}", action)


def _view(window: MainWindow, actions: Actions) -> None:
    menu = actions.menu("&View")
    centre = (("network", "&Network", "Ctrl+1"), ("autograd", "&Autograd", "Ctrl+2"), ("code", "&Code", "Ctrl+3"))
    for key, text, shortcut in centre:
        actions.add(menu, f"show.{key}", text, partial(window.show_page, key), shortcut, key)
    menu.addSeparator()
    for key in ("frame_all", "frame_selection", "zoom_in", "zoom_out", "zoom_100"):
        _adopt(window, actions, menu, key)
    menu.addSeparator()
    below = (("problems", "&Problems"), ("tape", "Backward &tape"), ("cost", "Co&st"), ("curves", "C&urves"),
             ("console", "C&onsole"), ("runs", "&Runs"), ("evaluation", "E&valuation"),
             ("layer", "&Layer"))  # fmt: skip
    for key, text in below:
        actions.add(menu, f"show.{key}", text, partial(window.show_page, key))
    menu.addSeparator()
    window.dock_menu = menu.addMenu("&Docks")
    look = menu.addMenu("&Theme")
    made = actions.choices(
        look, "theme", (("dark", "Dark"), ("light", "Light"), ("system", "As the system")), window.set_theme
    )
    made[window.settings.theme].setChecked(True)
    still = menu.addAction("Reduce &motion")
    still.setCheckable(True)
    still.setChecked(window.settings.reduced_motion)
    still.toggled.connect(window.set_reduced_motion)


def _layer(window: MainWindow, actions: Actions) -> None:
    menu = actions.menu("&Layer")
    for key in ("search", "edit", "rename", "replace", "connect", "disconnect", "mute", "freeze", "lay_out"):
        _adopt(window, actions, menu, key)
    align = menu.addMenu("&Align and distribute")
    for key in (*(f"align_{edge}" for edge in alignment.EDGES), *(f"distribute_{axis}" for axis in alignment.AXES)):
        _adopt(window, actions, align, key)
    menu.addSeparator()
    notes = menu.addMenu("&Comments and bends")
    for key in ("comment", "fit_frame", "next_note", "previous_note", "bend", "straighten",
                *(f"grow_{way}" for way in WAYS)):  # fmt: skip
        _adopt(window, actions, notes, key)
    walk = menu.addMenu("&Navigate and nudge")
    for key in (*WAYS, *(f"nudge_{way}" for way in WAYS)):
        _adopt(window, actions, walk, key)
    menu.addSeparator()
    head = window.head_control
    actions.add(menu, "replace-last", "Replace the l&ast layer…", head.ask_replace)
    actions.add(menu, "drop-last", "&Drop the last layer", head.drop)
    actions.add(menu, "freeze-but-last", "Free&ze all but the last layer", head.freeze, icon="snowflake")
    menu.addSeparator()
    actions.add(menu, "add-layers", "Add a &file of layers…", window.layers.choose, icon="code")


def _block(window: MainWindow, actions: Actions) -> None:
    menu = actions.menu("&Block")
    control, library = window.block_control, window.library_control
    rows = (
        ("make", "&Make Block…", control.make, "Ctrl+G", "block"),
        ("expand", "&Expand Block", control.expand, "Ctrl+Shift+G", ""),
        (),
        ("in", "Go &In", control.go_in, "Alt+Down", ""),
        ("out", "Go &Out", control.go_out, "Alt+Up", ""),
        (),
        ("params", "Edit &Parameters of the Instance", control.edit_params, "Alt+Return", "inspector"),
        ("canvas.unfold",),
        ("canvas.unfold_level",),
        ("canvas.fold_all",),
        (),
        ("repeat", "&Repeat…", control.repeat, "Ctrl+Shift+R", ""),
        ("unique", "Make &Unique", control.make_unique, "Ctrl+U", ""),
        ("expose", "E&xpose Parameter…", control.expose, "Ctrl+Shift+X", ""),
        ("rename", "Re&name Block…", control.rename, "Shift+F2", ""),
        (),
        ("save", "&Save to Library…", library.save, "", "save"),
        ("folder", "Show &Library Folder", library.show_folder, "", "folder"),
        ("choose", "&Choose Library Folder…", library.choose_folder, "", ""),
    )
    for row in rows:
        if len(row) == 1:
            _adopt(window, actions, menu, row[0].removeprefix("canvas."))
        elif row:
            key, text, does, shortcut, icon = row
            actions.add(menu, f"block.{key}", text, does, shortcut, icon)
        else:
            menu.addSeparator()


def _run(window: MainWindow, actions: Actions) -> None:
    menu = actions.menu("&Run")
    control = window.run_control
    actions.add(menu, "run", "&Run or resume", control.run, "F5", "run")
    actions.add(menu, "pause", "&Pause", control.pause, "F6", "pause")
    actions.add(menu, "step", "&Step one batch", control.step, "F7", "step")
    actions.add(menu, "stop", "S&top", control.stop, "F8", "stop")
    actions.add(menu, "continue", "Res&ume the newest run", lambda: _continue(window), "", "",
                "Resume it from its newest checkpoint, as if it had never stopped")  # fmt: skip
    menu.addSeparator()
    trial = TrialControl(window)
    actions.add(menu, "set-rate", "Set the &learning rate", trial.show_rate, "Ctrl+Shift+L", "curves",
                "Of the current run, or of the next")  # fmt: skip
    actions.add(menu, "find-rate", "&Find a learning rate…", trial.find_rate)
    actions.add(menu, "dry-run", "Dr&y run on synthetic data", trial.dry_run, "Shift+F5")
    actions.add(menu, "overfit", "Overfit &one batch", trial.overfit)
    actions.add(menu, "memory", "&Memory of a step…", lambda: window.memory_control.open(), "", "memory",
                "By layer: estimated for the network, measured during a run")  # fmt: skip
    actions.add(menu, "profile", "Prof&ile of a step…", lambda: window.profile_control.open(), "", "",
                "Time of a training step by operation")  # fmt: skip
    menu.addSeparator()
    PlacesControl(window).fill(actions, menu)
    menu.addSeparator()
    actions.add(menu, "forget-weights", "Start from ran&dom weights", window.weights_control.forget).setEnabled(False)
    actions.add(menu, "take-inits", "&Initialise as the imported model", window.weights_control.take_inits, "", "",
                "Initialises new weights as the imported model does").setEnabled(False)  # fmt: skip


def _continue(window: MainWindow) -> None:
    window.furnish()
    window.runs_control.go_on_newest()


def _autograd(window: MainWindow, actions: Actions) -> None:
    menu = actions.menu("&Autograd")

    def capture(train: bool) -> None:
        window.show_page("autograd")
        window.snippets.show("net")
        window.autograd_control.capture(train)

    def snippet() -> None:
        window.show_page("autograd")
        window.snippets.show("snippet")

    actions.add(menu, "capture", "&Capture one batch", lambda: capture(True), "Ctrl+Return", "autograd")
    actions.add(menu, "capture-eval", "Capture in &eval mode", lambda: capture(False))
    menu.addSeparator()

    def tape(name: str) -> Callable[[], None]:
        def do() -> None:
            window.furnish()
            getattr(window.tape_control, name)()

        return do

    actions.add(menu, "play-backward", "&Play backward or pause", tape("play"), "F9", "run")
    actions.add(menu, "step-backward", "S&tep", tape("step"), "F10", "step", "Run the next backward node")
    actions.add(menu, "step-back", "Step &back", tape("back"), "Ctrl+F10", "step-back", "Undo the last backward step")
    actions.add(menu, "run-to-selected", "&Run to selected", tape("run_to_selected"), "Ctrl+F9", "to-end")
    actions.add(menu, "break-at-selected", "Break at se&lected", tape("break_at_selected"), "Shift+F9", "record")
    actions.add(menu, "html-replay", "Export an HT&ML replay…", tape("export_replay"), "", "export",
                "A self-contained page that plays the backward pass")  # fmt: skip
    menu.addSeparator()

    def findings(name: str, *given: str) -> Callable[[], None]:
        def do() -> None:
            window.furnish()
            getattr(window.findings_control, name)(*given)

        return do

    actions.add(menu, "findings", "&Findings", findings("show", "findings"), "Ctrl+F8", "flask")
    actions.add(menu, "gain-ladder", "&Gain ladder", findings("show", "gain"))
    actions.add(menu, "gradcheck-net", "Run gradcheck on the &whole net", findings("check_net"))
    actions.add(menu, "gradcheck-here", "Run gradcheck &here", findings("check_selected"))
    actions.add(menu, "what-if-checkpoint", "What if a bloc&k were checkpointed", findings("show", "checkpoint"))
    window.autograd_menu = menu
    menu.addSeparator()
    actions.add(menu, "snippet", "&Snippet of PyTorch", snippet, "Ctrl+Shift+Return", "code")


def _help(window: MainWindow, actions: Actions) -> None:
    menu = actions.menu("&Help")
    actions.add(
        menu, "commands", "Search &commands", lambda: _commands(window, actions),
        ("Ctrl+K", "Ctrl+Shift+P"), "search",
    )  # fmt: skip
    actions.add(menu, "shortcuts", "&Shortcuts", lambda: _shortcuts(window, actions), ("?", "F1"), "help")
    menu.addSeparator()
    actions.add(menu, "about", "&About Tapedeck", lambda: _about(window))
    actions.add(menu, "about-qt", "About &Qt", QApplication.aboutQt)


# The dialogs are imported when they are first asked for.


def _gallery(window: MainWindow) -> None:
    from app.views.gallery.gallery import GalleryDialog

    files, dialog = window.files, GalleryDialog(window.engine, window.settings.data_folder, window)
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.chosen.connect(lambda path: files.new() if path is None else files.open_example(path.name))
    dialog.open()


def _shortcuts(window: MainWindow, actions: Actions) -> None:
    from app.views.ui.dialogs.shortcuts import ShortcutSheet

    ShortcutSheet(actions.all(), window).open()


def _commands(window: MainWindow, actions: Actions) -> None:
    from app.views.ui.dialogs.shortcuts import CommandPalette

    CommandPalette(actions.all(), window).open()


def _about(window: MainWindow) -> None:
    from app.views.ui.dialogs.about import AboutDialog

    AboutDialog(window).open()
