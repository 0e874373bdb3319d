"""The Data section of the Training tab: which data a run learns from, and what is known of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QWidget

from app.data.config import DataConfig
from app.data.sources import SOURCES, default_root, is_present
from app.training.choices import Param
from app.training.job import JobError, check_data
from app.views.inspector.form import ParamForm
from app.views.numbers import grouped_digits, megabytes
from app.views.widgets import Button, ChoiceField, Section
from app.views.widgets.painting import label

_SPLIT = (
    Param("validation_fraction", "float", DataConfig.validation_fraction, minimum=0, doc="Share of samples held out."),
    Param("split_seed", "int", DataConfig.split_seed, minimum=0, doc="Decides which samples are held out."),
)


class DataSection(Section):
    """Which data, what is known of them before they are read, and the split.

    `chosen(DataConfig, words, merge)` is the config that a person made; `merge` is equal within a visit to a field.
    """

    chosen = Signal(object, str, object)
    download_requested = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Data", parent=parent)
        self._root: Path = default_root()
        self._config = DataConfig()
        self.source = ChoiceField([(key, spec.label) for key, spec in SOURCES.items()], pairs=True)
        self.source.setAccessibleName("Data source")
        self.source.edited.connect(lambda key: self._set("source", key, None))
        self.words = label("", "label", "text2", wrap=True)
        self.state = label("", "label", "text3", wrap=True)
        self.download = Button("Download …", icon="save")
        self.download.clicked.connect(lambda: self.download_requested.emit(self._config.source))
        self.split = ParamForm(_SPLIT)
        self.split.set_docs({param.name: param.doc for param in _SPLIT})
        self.split.edited.connect(self._set)
        self.split.reset.connect(lambda name: self._set(name, getattr(DataConfig, name), None))
        self.own_split = label("", "label", "text3", wrap=True)
        for part in (self.source, self.words, self.state):
            self.body_layout.addWidget(part)
        self.body_layout.addWidget(self.download, 0, Qt.AlignmentFlag.AlignLeft)
        self.body_layout.addWidget(self.split)
        self.body_layout.addWidget(self.own_split)

    def set_root(self, root: Path) -> None:
        """Where downloaded data lie."""
        self._root = root
        self.show_config(self._config)

    def show_config(self, config: DataConfig) -> None:
        """Show what the project holds, and whether the data are here."""
        self._config = config
        self.source.set_value(config.source)
        spec = SOURCES.get(config.source)
        self.split.set_values({"validation_fraction": config.validation_fraction, "split_seed": config.split_seed})
        self.split.setVisible(spec is not None and not spec.own_split)
        self.own_split.setVisible(spec is not None and spec.own_split)
        self.own_split.setText("The validation samples are those that the authors of the data chose.")
        missing = spec is not None and not is_present(config.source, self._root)
        self.download.setVisible(missing)
        if spec is None:
            self.words.setText("The project names data that are not known here. Choose others.")
            self.state.setText("")
            return
        self.words.setText(spec.summary)
        self.download.setText(f"Download {megabytes(spec.download_bytes)} …")
        shape = "×".join(map(str, spec.shape))
        state = f"{grouped_digits(spec.count)} samples of {shape} {spec.dtype}, {len(spec.classes)} classes."
        if spec.download_bytes:
            here = f"Downloaded, in {self._root}."
            state += f" {'Not downloaded; nothing is fetched unless you ask.' if missing else here}"
        self.state.setText(state)

    def _set(self, name: str, value: Any, merge: str | None) -> None:
        config = replace(self._config, **{name: value})
        try:
            check_data(config)
        except JobError as error:
            # Another field may be at fault, in a file that was edited by hand; that is no reason to refuse this one.
            if str(error).startswith(f"{name} is "):
                self.split.set_problem(name, str(error))
                return
        self.split.set_problem(name, "")
        self.chosen.emit(config, f"Set {name.replace('_', ' ')}", f"data/{merge}" if merge else None)
