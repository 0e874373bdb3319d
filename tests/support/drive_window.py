"""Drive the real window through a day's work, and say at the end which of the heavy packages its process imported.

A program of its own, since the process of the tests has torch: `python -m tests.support.drive_window FOLDER`. Each
import of a heavy package is printed with the place that wanted it.
"""

from __future__ import annotations

import importlib.abc
import json
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

HEAVY = {"torch", "torchvision", "torchmetrics", "sklearn"}
PATIENCE = 300.0  # seconds
imported: list[str] = []


class Watch(importlib.abc.MetaPathFinder):
    """Notes who imports what is heavy, and lets it be."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        if name in HEAVY:
            stack = [
                frame
                for frame in traceback.extract_stack()
                if "/app/" in frame.filename
            ]
            places = " < ".join(
                f"{Path(frame.filename).name}:{frame.lineno}"
                for frame in reversed(stack[-6:])
            )
            imported.append(f"{name}: {places}")


def main(folder: Path) -> int:
    sys.meta_path.insert(0, Watch())
    from PySide6.QtCore import QSettings
    from PySide6.QtTest import QTest

    from app.views.app import make_application
    from app.views.settings import Settings
    from app.views.ui import theme
    from tests.support.whole_window import WholeWindow

    for form in (QSettings.Format.NativeFormat, QSettings.Format.IniFormat):
        QSettings.setPath(form, QSettings.Scope.UserScope, str(folder))
    application = make_application()
    theme.apply(application, "dark")
    window = WholeWindow(Settings("TapedeckTest", "drive"))
    said: list[str] = []
    show = window.toasts.show
    window.toasts.show = lambda *given, **more: (
        said.append(str(given)) or show(*given, **more)
    )  # type: ignore[assignment]
    window.show()
    window.start()

    def until(what: str, ready: Callable[[], Any]) -> None:
        end = time.monotonic() + PATIENCE
        while not ready():
            QTest.qWait(20)
            if time.monotonic() > end:
                raise TimeoutError(
                    f"{what}; said {said[-4:]}, banner {window.banner.isVisible()}, imported {imported}"
                )
        print(what, flush=True)

    def known() -> bool:
        return window.live.up_to_date and window.furnished

    window.files.open_example("MLP on digits.tape")
    until("opened", known)
    project = window.document.project
    window.document.apply(
        "Shorten", replace(project, training=replace(project.training, epochs=2))
    )
    linear = next(
        node for node in project.graph.nodes.values() if node.op == "nn.Linear"
    )
    window.canvas.selection.set({linear.id})
    graph = window.document.project.graph.with_name(linear.id, "first")
    window.document.apply("Rename", replace(window.document.project, graph=graph))
    until("edited", known)
    for page in ("cost", "curves", "console", "runs", "evaluation"):
        window.bottom.pane.show_page(page)
        QTest.qWait(50)
    for page in ("training", "inspector"):
        window.right.pane.show_page(page)
        QTest.qWait(50)
    window.centre.show_page("code")
    QTest.qWait(50)
    until("may run", lambda: not window.run_control.blocked)
    window.actions_by_key["run"].trigger()
    until("running", lambda: window.session.active)
    until("trained", lambda: window.session.state == "done")
    _training_rooms(window, folder, until)
    _autograd(window, folder, until)
    _export(window, folder, until)
    if hasattr(window, "weights_control"):
        _weights(window, folder, until)
    _import(window, until)
    _gallery(window, until)
    window.document.undo_stack.setClean()
    window.close()
    QTest.qWait(100)
    print(
        json.dumps({"imported": imported, "there": sorted(HEAVY & set(sys.modules))}),
        flush=True,
    )
    return 0


def _training_rooms(
    window: Any, folder: Path, until: Callable[[str, Callable[[], Any]], None]
) -> None:
    """The form, the trials, the evaluation, the layer and the runs of a project that was trained once."""
    from PySide6.QtCore import QPointF

    from app.data.config import DataConfig
    from app.features.trials.feature import DryRunDialog, FindRateDialog

    kept = window.document.project
    form, page = window.training_form, window.evaluation
    window.right.pane.show_page("training")
    form.data.show_batch.click()
    until("data looked at", lambda: form.data.batch.preview is not None)
    form.optimizer.form.edited.emit("lr", 0.002, None)
    until(
        "rate checked",
        lambda: window.document.project.training.optimizer.params.get("lr") == 0.002,
    )
    form.schedule.name.edited.emit("CosineAnnealingLR")
    until(
        "schedule drawn",
        lambda: form.schedule.form is not None and not form.schedule.plot.isHidden(),
    )
    window.actions_by_key["find-rate"].trigger()
    dialog = window.findChild(FindRateDialog)
    dialog.batches.set_value(12)
    dialog.start()
    until("rates tested", lambda: dialog.result_shown is not None)
    dialog.reject()
    until("may run again", lambda: not window.run_control.blocked)
    window.actions_by_key["dry-run"].trigger()
    until("run dry", lambda: window.findChild(DryRunDialog) is not None)
    window.findChild(DryRunDialog).accept()
    window.pages.show("evaluation")
    page.run.click()
    until("evaluated", lambda: page.found is not None and page.samples.samples)
    page.view.set_value("try")
    page.trying.pad.stroke(QPointF(40, 40), QPointF(120, 150))
    until("tried", lambda: page.trying.bars.called != "")
    window.pages.show("layer")
    until(
        "shows layers",
        lambda: hasattr(window, "layer_control") and bool(window.layer_page._layers),
    )
    layer = next(iter(window.layer_page._layers))
    window.layer_page.show_layer(layer)
    window.layer_page.layerChosen.emit(layer)
    until("looked inside", lambda: window.layer_page.inside.inside is not None)
    window.pages.show("runs")
    until(
        "listed runs",
        lambda: any(row.kept is not None for row in window.runs.model.rows),
    )
    run = next(row.kept for row in window.runs.model.rows if row.kept is not None)
    window.runs_control.export(run, folder)
    until("event files", lambda: any(folder.rglob("events.out.*")))
    window.runs_control.write_event_files(True)
    training = replace(window.document.project.training, epochs=3)
    window.document.apply("More", replace(window.document.project, training=training))
    until("known with more epochs", lambda: not window.run_control.blocked)
    window.runs_control.go_on(run)
    until("goes on", lambda: window.session.active)
    until("went on", lambda: window.session.state == "done")
    table = folder / "t.csv"
    table.write_text(
        "a,b,c\n" + "".join(f"{i / 60},{i % 7},{'xy'[i % 2]}\n" for i in range(60))
    )
    project = window.document.project
    window.document.apply(
        "Table", replace(project, data=DataConfig("file.csv", path=str(table)))
    )
    until(
        "table read",
        lambda: form.data.batch.preview is not None and form.data.batch.preview.rows,
    )
    window.document.apply("As it was", kept)
    until("as it was", lambda: window.live.up_to_date)


def _autograd(
    window: Any, folder: Path, until: Callable[[str, Callable[[], Any]], None]
) -> None:
    """From capture to replay: played backward, diagnosed, checked numerically, exported."""
    window.actions_by_key["capture"].trigger()
    until("captured", lambda: window.room.drawing() is not None)
    window.tape_control.show()
    player, findings = window.tape_control.player, window.findings_control
    player.set_speed(None)
    window.actions_by_key["play-backward"].trigger()
    until("played", lambda: 0 < len(player) == player.position)
    findings.run_diagnostics()
    until("diagnosed", lambda: findings.findings is not None)
    gradcheck = window.gradcheck
    gradcheck.check(
        next(node for node in window.room.tape.nodes if node.name == "ReluBackward0")
    )
    until("checked numerically", lambda: gradcheck.report is not None)
    assert gradcheck.report.passed
    player.release()
    window.tape_control.replay.export(folder / "replay.html")
    until("replay exported", (folder / "replay.html").exists)


def _export(
    window: Any, folder: Path, until: Callable[[str, Callable[[], Any]], None]
) -> None:
    from PySide6.QtCore import Qt
    from PySide6.QtTest import QTest

    from app.features.export.export_dialog import ExportDialog

    window.export_control.ask()
    (dialog,) = window.findChildren(ExportDialog)
    dialog.folder.setText(str(folder / "export"))
    (folder / "export").mkdir()
    for key, box in dialog.boxes.items():
        box.setChecked(key in ("code", "safetensors", "script", "certify"))
    proved: list[Any] = []
    window.export_control.proved.connect(proved.append)
    QTest.mouseClick(dialog.export_button, Qt.MouseButton.LeftButton)
    until("exported", lambda: len(list((folder / "export").iterdir())) >= 2)
    until("proved", lambda: proved and proved[0].passed)


def _weights(
    window: Any, folder: Path, until: Callable[[str, Callable[[], Any]], None]
) -> None:
    """Those of the run are saved and loaded again; then a layer of a person's own runs, in the engine."""
    from app.source import layer_files
    from tests.support import own_layers_nets as own

    window.weights_control.save(folder / "learnt.pt")
    until("weights saved", (folder / "learnt.pt").is_file)
    dialog = window.weights_control.open(folder / "learnt.pt")
    until("weights beside the net", lambda: not dialog.running)
    dialog.load_all()
    until("weights loaded", lambda: window.document.project.training.start is not None)
    until(
        "start counted", lambda: "tensors of learnt.pt" in window.status.text("start")
    )
    layer_files.allow(layer_files.digest(own.LAYERS))
    window.document.new(own.project(own.write(folder)))
    until(
        "layers of an own file",
        lambda: window.live.up_to_date and window.live.analysis.runnable,
    )
    window.document.undo_stack.setClean()


def _import(window: Any, until: Callable[[str, Callable[[], Any]], None]) -> None:
    from PySide6.QtCore import Qt
    from PySide6.QtTest import QTest

    from app.features.importing.dialogs import ImportDialog

    window.document.undo_stack.setClean()
    window.actions_by_key["import"].trigger()
    (dialog,) = [part for part in window.findChildren(ImportDialog) if part.isVisible()]
    until("listed", lambda: bool(dialog.torchvision.known))
    QTest.keyClicks(dialog.torchvision.search, "squeezenet1_1")
    before = window.document.project
    QTest.keyClick(dialog.torchvision.search, Qt.Key.Key_Return)
    until("imported", lambda: window.document.project is not before)
    until("known", lambda: window.live.up_to_date)


def _gallery(window: Any, until: Callable[[str, Callable[[], Any]], None]) -> None:
    """The examples are described, and a download is begun where there is nobody to give it."""
    from app.features.gallery.gallery import GalleryDialog
    from app.views.training.form.data import download_dialog
    from app.views.training.form.feature import TrainingFormFeature

    window.document.undo_stack.setClean()
    window.actions_by_key["gallery"].trigger()
    (dialog,) = window.findChildren(GalleryDialog)
    until("example described", lambda: any(card.facts for card in dialog.model.cards))
    dialog.reject()
    asked: list[Any] = []
    fetched = download_dialog.download
    download_dialog.download = lambda _source, addresses, *_rest: asked.append(
        addresses
    )  # type: ignore[assignment]
    try:
        window.findChild(TrainingFormFeature).download("torchvision.MNIST")
        fetching = window.findChild(download_dialog.DownloadDialog)
        fetching.start()
        until(
            "addresses found",
            lambda: asked and asked[0].mirrors and asked[0].archives[0].md5,
        )
    finally:
        download_dialog.download = fetched


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
