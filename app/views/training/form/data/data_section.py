"""The Data section of the Training tab: choice of the data, their facts, the split, and a preview batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace
from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QFileDialog, QProgressBar, QVBoxLayout, QWidget

from app.data import description
from app.data.config import BAD, LOADING, SPLIT, DataConfig, Transform
from app.data.known_sources import STAND_IN
from app.data.own_files import dataset_class
from app.data.sources import SOURCES, DataError, is_present, options_of, spec_of
from app.data.spec import VALUES, BatchPreview, ReadingCancelledError, SourceSpec
from app.data.transform_list import is_random
from app.engine.requests.data import FindDatasetClasses
from app.preflight import synthetic_data
from app.training.config import TrainingConfig
from app.training.job import JobError, check_data
from app.training.settings import section_of
from app.util.formatting import counted, grouped_digits, megabytes
from app.util.frozen import FrozenMap
from app.util.language import tr
from app.util.user_folders import default_root
from app.views.engine_service import EngineService
from app.views.fields.editors import TextEditor
from app.views.fields.form import ParamForm
from app.views.fields.values import equal_values
from app.views.training.form.data.batch_view import BatchView
from app.views.training.form.data.columns_table import ColumnsTable
from app.views.training.form.data.data_fit import FitBox
from app.views.training.form.data.data_reader import DataReader
from app.views.training.form.data.transforms_list import TransformsList
from app.views.training.form.fields_box import FieldsBox
from app.views.ui.background import WorkerFailure
from app.views.ui.dialogs.message import ListingDialog
from app.views.ui.layouts import hbox
from app.views.ui.widgets import Button, ChoiceField, Section
from app.views.ui.widgets.painting import label, set_property, show_or_hide

_KINDS = {"int", "float", "bool", "choice", "str", "literal"}
_NAMED = {"target"}  # chosen in the table of columns


class DataSection(Section):
    """The data of a run, their facts, the split, and one batch.

    `chosen(DataConfig, words, merge)` carries an edit; `merge` is the same for all edits of one visit to a field.
    `facts_changed` is emitted when more is known of the data, so that the fit of the net is checked again.
    """

    chosen = Signal(object, str, object)
    download_requested = Signal(str)
    facts_changed = Signal()
    net_requested = Signal()  # one that fits the data
    trust_requested = Signal(str)  # the path of a file to review before any of it runs

    def __init__(self, engine: EngineService) -> None:
        super().__init__("Data")
        self._engine = engine
        self._root: Path = default_root()
        self.folder: Path | None = (
            None  # of the project, where its data are looked for first
        )
        self._config = DataConfig()
        self._asked: DataConfig | None = None
        self._failed: DataConfig | None = (
            None  # what could not be read for another reason than the files
        )
        self.synthetic: synthetic_data.SyntheticData | None = None  # that fit the net
        self._options_of = ""
        self.options: ParamForm | None = None
        self.reader = DataReader(engine, self)
        self.reader.read.connect(self._read)
        self.reader.progress.connect(self._progress)
        self.source = ChoiceField(
            [(key, spec.label) for key, spec in SOURCES.items()], pairs=True
        )
        self.net_size: tuple[
            int, ...
        ] = ()  # height and width of the images that the net takes
        self._training = TrainingConfig()
        self.source.setAccessibleName("Data source")
        self.source.edited.connect(self.choose)
        self.words = label("", "label", "text2", wrap=True)
        self.state = label("", "label", "text3", wrap=True)
        self.download = Button("Download…", icon="save")
        self.download.clicked.connect(
            lambda: self.download_requested.emit(self._config.source)
        )
        self.pick = Button("Choose file…", icon="folder")
        self.pick.clicked.connect(self._pick)
        self.trust = Button("Review…", "primary", icon="eye")
        self.trust.clicked.connect(lambda: self.trust_requested.emit(self._config.path))
        self.offer = label("", "label", "text3", wrap=True)
        self.start_net = Button(tr("Start with a net for these data"), "primary")
        self.start_net.clicked.connect(self.net_requested)
        self.fit = FitBox()
        self.fields = FieldsBox()
        self.columns = ColumnsTable()
        self.columns.edited.connect(self._choose_columns)
        self._options_place = QVBoxLayout()
        self.split, self.loading, self.bad = (
            ParamForm(section_of(DataConfig, SPLIT)),
            ParamForm(section_of(DataConfig, LOADING)),
            ParamForm(section_of(DataConfig, BAD)),
        )
        for form in (self.split, self.loading, self.bad):
            form.edited.connect(self._set)
            form.reset.connect(
                lambda name: self._set(name, getattr(DataConfig(), name), None)
            )
        self.split.align_with(self.loading, self.bad)
        self.training_transforms = TransformsList("Transforms in training", random=True)
        self.eval_transforms = TransformsList("Transforms in evaluation", random=False)
        self.training_transforms.edited.connect(self._transform)
        self.eval_transforms.edited.connect(
            lambda transforms, change, merge: self._put(
                replace(self._config, eval_transforms=transforms), change, merge
            )
        )
        self.all_bad = Button("Show all unreadable samples…", "link")
        self.all_bad.clicked.connect(self._list_bad)
        self.own_split = label("", "label", "text3", wrap=True)
        self.balance = label("", "label", "text3", wrap=True)
        self.batch_words = label("", "label", "text2", wrap=True)
        self.batch = BatchView()
        self.batch.hide()
        self.show_batch = Button("Show a batch")
        self.show_batch.clicked.connect(self.read_data)
        self.stop = Button("Stop reading")
        self.stop.clicked.connect(self.reader.stop)
        self.bar = QProgressBar()
        self.bar.setTextVisible(False)
        self.bar.setAccessibleName("Progress of reading the data")
        self._lay_out()

    def _lay_out(self) -> None:
        widget: QWidget
        for widget in (self.source, self.words, self.state):
            self.body_layout.addWidget(widget)
        for button in (self.all_bad, self.download, self.pick, self.trust):
            self.body_layout.addWidget(button, 0, Qt.AlignmentFlag.AlignLeft)
        self.body_layout.addWidget(self.offer)
        self.body_layout.addWidget(self.start_net, 0, Qt.AlignmentFlag.AlignLeft)
        self.body_layout.addWidget(self.fit)
        self.body_layout.addWidget(self.fields)
        self.body_layout.addWidget(self.bar)
        self.body_layout.addWidget(self.stop, 0, Qt.AlignmentFlag.AlignLeft)
        self.body_layout.addWidget(self.columns)
        self.body_layout.addLayout(self._options_place)
        for widget in (
            self.bad,
            self.split,
            self.own_split,
            self.loading,
            self.balance,
            self.training_transforms,
            self.eval_transforms,
        ):
            self.body_layout.addWidget(widget)
        row = hbox(self.show_batch, 1)
        self.body_layout.addLayout(row)
        self.body_layout.addWidget(self.batch_words)
        self.body_layout.addWidget(self.batch)
        for widget in (self.bar, self.stop, self.columns, self.batch_words):
            widget.hide()
        self.set_offer("")

    def set_root(self, root: Path) -> None:
        """Set the folder of downloaded data."""
        self._root = root
        self.show_config(self._config)

    def set_offer(self, offer: str) -> None:
        """Offer a net for the data, which `offer` describes; none for ""."""
        self.offer.setText(offer)
        for widget in (self.offer, self.start_net):
            widget.setVisible(bool(offer))

    def set_training(self, training: TrainingConfig) -> None:
        """Set the settings that decide which batch a run trains on first; one that is shown is read again."""
        before, self._training = self._training, training
        if (
            self.batch.preview is not None
            and _order(before) != _order(training)
            and not self.reader.busy
        ):
            self.read_data()

    def show_config(self, config: DataConfig) -> None:
        """Show the project's data and whether they are available; the user's files not read yet are read now."""
        if config != self._config:
            self.batch.show_preview(None)
            self.batch_words.hide()
        self._config = config
        self.source.set_value(config.source)
        bare = SOURCES.get(config.source)
        for form in (self.split, self.loading, self.bad):
            form.set_values({name: getattr(config, name) for name in form.rows})
        self._show_options(bare)
        spec, problem = self._spec()
        self.split.setVisible(bare is not None and not bare.own_split)
        self.own_split.setVisible(bare is not None and bare.own_split)
        self.own_split.setText(
            "Uses the validation split chosen by the authors of the data."
        )
        self.loading.setVisible(bare is not None)
        self.bad.setVisible(bare is not None and bool(bare.picks))
        missing = bare is not None and not is_present(config.source, self._root)
        waits = (
            config.source == dataset_class.KEY
            and bool(config.path)
            and not dataset_class.trusted(config)
        )
        self.download.setVisible(missing)
        self.trust.setVisible(waits)
        self.pick.setVisible(bare is not None and bool(bare.picks))
        missing_stays = missing and not config.options.get("stand_in")
        in_the_way = (
            bare is None or missing_stays or problem or waits or self.reader.busy
        )
        self.show_batch.setVisible(not in_the_way)
        self._update_text(bare, spec, problem, missing)
        self._show_transforms(bare)
        if waits and not problem:
            self.state.setText(
                f"{Path(config.path).name} is not trusted yet, so none of its code was run."
            )
        elif self._is_to_be_read(bare, spec) and not problem and config != self._failed:
            self.read_data()

    def _is_to_be_read(self, bare: SourceSpec | None, spec: SourceSpec | None) -> bool:
        return (
            bare is not None
            and bool(bare.picks and self._config.path)
            and spec is not None
            and not spec.is_read
        )

    def _spec(self) -> tuple[SourceSpec | None, str]:
        """Return the known facts of the data, and why they cannot be used."""
        try:
            check_data(self._config)
            return spec_of(self._config), ""
        except (JobError, DataError) as error:
            return SOURCES.get(self._config.source), str(error)

    def _update_text(
        self,
        bare: SourceSpec | None,
        spec: SourceSpec | None,
        problem: str,
        missing: bool,
    ) -> None:
        if bare is None or spec is None:
            self.words.setText(
                "The project uses a data source that this version does not know. Choose another one."
            )
            self.state.setText("")
            self.balance.hide()
            self.all_bad.hide()
            return
        self.words.setText(bare.summary)
        self.download.setText(f"Download {megabytes(bare.download_bytes)}…")
        self.pick.setText(
            f"Choose another {bare.picks}…"
            if self._config.path
            else f"Choose a {bare.picks}…"
        )
        self.pick.setToolTip(self._config.path)
        sentences = [description.facts(spec, self._config)] if spec.is_read else []
        if bare.picks and self._config.path and not spec.is_read and not problem:
            sentences.append(f"{Path(self._config.path).name} has not been read yet.")
        if bare.download_bytes:
            here = f"Downloaded to {self._root}."
            stands_in = bool(self._config.options.get("stand_in"))
            until = (
                "Not downloaded yet: runs train on a small stand-in, and say so."
                if stands_in
                else ("Not downloaded yet; nothing is downloaded without asking.")
            )
            sentences.append(until if missing else here)
        self.all_bad.setVisible(len(spec.bad) > description.BAD_NAMED)
        sentences += [*spec.notes, description.bad(spec, self._config.bad)]
        picking = bool(bare.picks) and not self._config.path
        set_property(
            self.state, "tone", "error" if problem and not picking else "text3"
        )
        show_or_hide(
            self.state,
            problem if problem and not picking else " ".join(filter(None, sentences)),
        )
        self.balance.setText(description.balance(spec))
        self.balance.setVisible(bool(self.balance.text()) and spec.task != VALUES)
        if spec.all_columns and not problem:
            self.columns.show_columns(spec, options_of(self._config))
        else:
            self.columns.hide()

    def _list_bad(self) -> None:
        spec, _ = self._spec()
        if spec is not None:
            title = f"{counted(len(spec.bad), 'sample')} of {Path(self._config.path).name} cannot be read"
            ListingDialog(title, spec.bad, self.window()).open()

    # --- Edits

    def _show_options(self, spec: SourceSpec | None) -> None:
        key = spec.key if spec is not None else ""
        if key != self._options_of:
            self._options_of = key
            if self.options is not None:
                self._options_place.removeWidget(self.options)
                self.options.hide()
                self.options.deleteLater()
                self.options = None
            shown = (
                [
                    option
                    for option in spec.options
                    if option.kind in _KINDS and option.name not in _NAMED
                ]
                if spec
                else []
            )
            if shown:
                self.options = ParamForm(shown)
                self.options.edited.connect(self._set_option)
                self.options.reset.connect(
                    lambda name: self._put_options({name: None}, f"Reset {name}", None)
                )
                self._options_place.addWidget(self.options)
            self.split.align_with(self.loading, self.bad, *filter(None, [self.options]))
        if self.options is not None:
            self.options.set_values(
                {
                    k: v
                    for k, v in self._config.options.items()
                    if k in self.options.rows
                }
            )
            self._show_taken()
            self._request_classes()

    def _request_classes(self) -> None:
        """Have the engine list the Dataset classes of a Python file, whose text it reads without running it."""
        if self._options_of != dataset_class.KEY:
            return
        if not self._config.path:
            self._offer_classes(())
            return
        self._engine.ask(
            "data.classes",
            FindDatasetClasses(Path(self._config.path)),
            on_answer=self._offer_classes,
            on_error=lambda _failure: self._offer_classes(
                ()
            ),  # the error is shown where the file is read
        )

    def _offer_classes(self, names: tuple[str, ...]) -> None:
        row = self.options.rows.get("dataset") if self.options is not None else None
        if row is not None and isinstance(row.editor, TextEditor):
            row.editor.offer(names)
            row.editor.field.setPlaceholderText(
                names[0] if len(names) == 1 else "choose one" if names else ""
            )

    def _show_taken(self) -> None:
        """Show in the empty fields of an array file which of its arrays were taken."""
        spec, _ = self._spec()
        for name in ("inputs", "labels"):
            if (
                self.options is not None
                and name in self.options.rows
                and spec is not None
            ):
                array_names = spec.arguments.get(name, "")
                placeholder = (
                    array_names
                    if isinstance(array_names, str)
                    else ", ".join(array_names)
                )
                self.options.editor(name).field.setPlaceholderText(placeholder)

    def _show_transforms(self, bare: SourceSpec | None) -> None:
        """Show the lists for images, and for a project that has transforms anyway."""
        config = self._config
        try:
            plain = spec_of(replace(config, train_transforms=(), eval_transforms=()))
            shape = () if plain.inputs else plain.shape  # transforms are for one input
        except DataError:
            shape = ()
        for transforms_list, chosen in (
            (self.training_transforms, config.train_transforms),
            (self.eval_transforms, config.eval_transforms),
        ):
            transforms_list.shape = shape
            transforms_list.initial_size = self.net_size or shape[1:]
            transforms_list.show_transforms(chosen)
            transforms_list.setVisible(
                bare is not None
                and (bool(chosen) or (len(shape) == 3 and shape[0] in (1, 3)))
            )

    def _transform(
        self, transforms: tuple[Transform, ...], change: str, merge: str | None
    ) -> None:
        """Set the training transforms; added ones that are not random are also added for evaluation, and one that is
        the same in both lists is changed in both, and removed from both: else it would be evaluated on other inputs.
        """
        before, evaluated = (
            self._config.train_transforms,
            list(self._config.eval_transforms),
        )
        added = transforms[len(before) :]
        if added and not is_random(added):
            evaluated += added
        if len(transforms) == len(
            before
        ):  # entries that are equal in both lists stay equal
            changed = {
                old: new
                for old, new in zip(before, transforms, strict=True)
                if old != new and old.name == new.name
            }
            evaluated = [changed.get(transform, transform) for transform in evaluated]
        if len(transforms) < len(before):
            evaluated = [
                transform
                for transform in evaluated
                if transform in transforms or transform not in before
            ]
        config = replace(
            self._config, train_transforms=transforms, eval_transforms=tuple(evaluated)
        )
        self._put(config, change, merge)

    def _put(self, config: DataConfig, change: str, merge: str | None) -> None:
        self.chosen.emit(config, change, f"data/{merge}" if merge else None)

    def choose(self, key: str) -> None:
        fits = self.synthetic is not None and self.synthetic.source == key
        options = (
            self.synthetic.options
            if self.synthetic is not None and fits
            else FrozenMap()
        )
        config = replace(
            self._config,
            source=key,
            path="",
            options=options,
            train_transforms=(),
            eval_transforms=(),
        )
        self.chosen.emit(config, f"Set data to {SOURCES[key].label}", None)

    def begin(self, key: str) -> None:
        """Choose data, and of the user's own ask for the file or folder at once."""
        self.choose(key)
        if SOURCES[key].picks:
            self._pick()

    def take(self, config: DataConfig) -> None:
        """Choose a file or folder of the user's, with the split and the loading as they are."""
        taken = replace(
            self._config,
            source=config.source,
            path=config.path,
            options=config.options,
            train_transforms=(),
            eval_transforms=(),
        )
        self.chosen.emit(taken, f"Read {Path(config.path).name}", None)

    def _pick(self) -> None:
        spec, start = (
            SOURCES[self._config.source],
            self._config.path or str(self.folder or Path.home()),
        )
        if spec.picks == "folder":
            name = QFileDialog.getExistingDirectory(self, "Image folder", start)
        else:
            kinds = f"{spec.label.removesuffix('…')} ({spec.pattern});;All files (*)"
            name, _ = QFileDialog.getOpenFileName(self, "Choose data", start, kinds)
        if name:
            self.set_path(name)

    def set_path(self, path: str) -> None:
        """Change the file or folder; the choice of columns is dropped."""
        options = self._config.options.without(
            "inputs", "target", "more_targets", "categories", "numbers", "labels"
        )
        self.chosen.emit(
            replace(self._config, path=path, options=options),
            f"Read {Path(path).name}",
            None,
        )

    def _choose_columns(self, options: dict[str, Any]) -> None:
        self._put_options(options, "Choose columns", None)

    def _set_option(self, name: str, value: Any, merge: str | None) -> None:
        option = next(
            candidate
            for candidate in SOURCES[self._config.source].options
            if candidate.name == name
        )
        if option.kind == "float" and type(value) is int:
            value = float(value)
        if refusal := option.refusal(value):
            assert self.options is not None
            self.options.set_problem(name, f"{name} is {value!r}; {refusal}.")
            return
        self._put_options({name: value}, f"Set {name}", merge)

    def _put_options(
        self, changed: dict[str, Any], change: str, merge: str | None
    ) -> None:
        """Put options into the config; those that are the default, or None, are left out."""
        defaults = {
            option.name: option.default
            for option in SOURCES[self._config.source].options
        }
        options = {**self._config.options, **changed}
        non_default = {
            name: value
            for name, value in options.items()
            if value is not None and not equal_values(value, defaults[name])
        }
        config = replace(self._config, options=FrozenMap(non_default))
        if self.options is not None:
            for name in changed:
                self.options.set_problem(name, "")
        self._put(config, change, merge)

    def take_stand_in(self) -> None:
        """Have runs train on the stand-in until the data are downloaded."""
        self._put_options({STAND_IN.name: True}, f"Set {STAND_IN.name}", None)

    def _set(self, name: str, value: Any, merge: str | None) -> None:
        config = replace(self._config, **{name: value})
        form = next(
            form for form in (self.split, self.loading, self.bad) if name in form.rows
        )
        try:
            check_data(config)
        except JobError as error:
            # Another field may be wrong, in a file that was edited by hand; that is no reason to refuse this one.
            if str(error).startswith(f"{name} is "):
                form.set_problem(name, str(error))
                return
        form.set_problem(name, "")
        self._put(config, f"Set {name.replace('_', ' ')}", merge)

    # --- Reading

    def read_data(self) -> None:
        """Have the engine read the data and a preview batch."""
        if self._asked == self._config and self.reader.busy:
            return
        self._asked, self._failed = self._config, None
        self.reader.request(self._config, self._root, self._training)
        self.show_batch.hide()
        self.bar.setRange(0, 0)
        self.bar.show()
        self.stop.show()

    def _progress(self, done: int, total: int, name: str) -> None:
        self.bar.setRange(0, max(total, 1))
        self.bar.setValue(done)
        self.state.setText(
            f"Reading {name}, {grouped_digits(done)} of {grouped_digits(total)}."
        )
        self.state.show()

    @Slot(object, object)
    def _read(self, config: DataConfig, answer: BatchPreview | WorkerFailure) -> None:
        self.bar.hide()
        self.stop.hide()
        self._asked = None
        if config != self._config:
            return
        error = answer.error if isinstance(answer, WorkerFailure) else None
        if isinstance(error, ReadingCancelledError):
            self.show_batch.show()
            self.state.setText("Reading was stopped. Show a batch to restart it.")
            return
        if error is not None and not isinstance(error, DataError):
            self._failed = config  # what ended the engine may end it again
        self.show_config(config)
        if isinstance(answer, BatchPreview):
            self.batch.show_preview(answer)
            self.batch_words.setText(description.batch(answer))
            self.batch_words.show()
        elif not self._spec()[1]:
            set_property(self.state, "tone", "error")
            self.state.setText(str(error))
            self.state.show()
        self.facts_changed.emit()


def _order(training: TrainingConfig) -> tuple[int, int, bool]:
    """Return what decides which samples a run trains on first."""
    return training.seed, training.batch_size, training.one_batch
