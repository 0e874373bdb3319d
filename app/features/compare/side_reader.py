"""Read the two sides of a comparison: files by the engine, sources as they are written; then ask whether
code of the person's own may run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace
from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from app.builder.catalog.custom import read_text
from app.engine.requests.observe import Observe, request_of
from app.features.compare.values import DiffSide, ReadSide
from app.project.weights.state_dict_diff import SUFFIXES
from app.runs.named import PROJECT
from app.source.layer_files import LayerFileError, allowed
from app.sources.finding import file_of, files_of
from app.sources.spec import FILES, AskedModel, SourceError
from app.util.user_folders import typed_path
from app.views.trust_dialog import PERMISSIONS, ModelTrustDialog
from app.views.ui.background import WorkerFailure

if TYPE_CHECKING:
    from app.views.workspace import Workspace

KEY = "side of a comparison"

Then = Callable[[tuple[DiffSide, ...]], object]
Refuse = Callable[[int, str], object]


class CompareTrustDialog(ModelTrustDialog):
    """Shows the file of a model before it runs to be compared."""

    warning = f"To compare its model, Python runs this code {PERMISSIONS}"
    agree = "Trust and compare"


class AskedSide(Struct, frozen=True):
    """A side as written: a source as File > Open a model takes it, a project, the folder of a run, a checkpoint or a
    file of weights, each perhaps with `@` and its weights. `inputs` and `arguments` are those of a source."""

    text: str
    arguments: str = ""
    inputs: tuple[str, ...] = ()


class SideReader(QObject):
    """Reads sides one after another."""

    def __init__(self, workspace: Workspace, parent: QWidget) -> None:
        super().__init__(parent)
        self._workspace, self._parent = workspace, parent

    def read(
        self, requested: Sequence[AskedSide | DiffSide], then: Then, refuse: Refuse
    ) -> None:
        """Read all, ask about what may not run yet, and hand them to `then`; or say to `refuse(which, why)`."""
        self._next(list(requested), [], then, refuse)

    def forget(self) -> None:
        """Drop what is being read."""
        self._workspace.engine.forget(KEY)

    def _next(
        self,
        waiting: list[AskedSide | DiffSide],
        sides: list[DiffSide],
        then: Then,
        refuse: Refuse,
    ) -> None:
        index = len(sides)
        if not waiting:
            self._ask_trust(tuple(sides), 0, then, refuse)
            return
        pending, rest = waiting[0], waiting[1:]

        def go_on(side: DiffSide) -> None:
            self._next(rest, [*sides, side], then, refuse)

        def failed(failure: WorkerFailure) -> None:
            refuse(index, _sentence(failure.error))

        try:
            side = pending if isinstance(pending, DiffSide) else _side_of(pending)
        except SourceError as error:
            refuse(index, _sentence(error))
            return
        if isinstance(side, ReadSide):
            self._workspace.engine.ask(KEY, side, on_answer=go_on, on_error=failed)
        else:
            go_on(side)

    def _ask_trust(
        self, sides: tuple[DiffSide, ...], index: int, then: Then, refuse: Refuse
    ) -> None:
        """Show the files that would run one after another, and continue once each is trusted."""
        if index == len(sides):
            then(sides)
            return

        def go_on() -> None:
            self._ask_trust(sides, index + 1, then, refuse)

        model = sides[index].model
        if not isinstance(model, Observe) or not model.source.own_code:
            go_on()
            return
        path = file_of(model.source, model.folder)
        if path is None:
            refuse(
                index, f"No file found for {model.source.where or model.source.kind}."
            )
            return
        try:
            read_text(path)
        except LayerFileError as error:
            refuse(index, _sentence(error))
            return
        files = files_of(model.source, model.folder)
        if files is None:
            refuse(index, f"{path} cannot be read.")
            return
        if allowed(files.key):
            go_on()
            return
        agreed: list[object] = []
        dialog = self._workspace.layers.review_model(
            files, CompareTrustDialog, self._parent
        )

        def ended(_result: int) -> None:
            if agreed:
                go_on()
            else:
                why = f"{path.name} is not trusted yet, so none of its code was run."
                refuse(index, f"{why} Compare again to review and trust it.")

        dialog.trusted.connect(agreed.append)
        dialog.finished.connect(ended)


def _side_of(side: AskedSide) -> DiffSide | ReadSide:
    """Return the side, or the request that reads it. Raises SourceError."""
    text, weights = side.text, ""
    if not os.path.exists(typed_path(text)) and "@" in text:
        text, _, weights = text.rpartition("@")
        if not weights:
            raise SourceError(
                f"Nothing follows the @ of {text}@: write a step of the run, or a file of weights"
            )
    path = typed_path(text)
    file = typed_path(weights) if weights else None
    if file is not None and os.path.isfile(file):
        weights = str(file.absolute())
    if os.path.isdir(path) or path.suffix in (PROJECT, *SUFFIXES):
        return ReadSide(str(path.absolute()), weights)
    if file is not None and not os.path.isfile(file):
        raise SourceError(f"The file {weights} does not exist")
    request = request_of(AskedModel(text, side.arguments, side.inputs))
    if request.source.kind in FILES:
        raise SourceError(
            f"{text} can only be viewed in the window; compare it with tapedeck diff --trust"
        )
    name = f"{text} with {Path(weights).name}" if weights else text
    return DiffSide(name, replace(request, meta=False), weights)


def _sentence(error: BaseException) -> str:
    message = str(error).strip() or type(error).__name__
    return f"{message[:1].upper()}{message[1:].removesuffix('.')}."
