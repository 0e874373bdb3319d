"""What Ctrl+K finds of the page Training: its settings, and the classes, data and metrics that can be chosen there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from PySide6.QtWidgets import QScrollArea, QWidget

from app.data.known_sources import SOURCES
from app.data.transform_list import KINDS
from app.training.choices import LOSSES, OPTIMIZERS, SCHEDULERS
from app.training.metrics import SCORES
from app.views.fields.form import ParamForm
from app.views.fields.row import ParamRow
from app.views.training.form.settings_form import TrainingForm
from app.views.ui.dialogs.search import SearchEntry
from app.views.ui.widgets import Section


def searched(form: TrainingForm, show: Callable[[], object]) -> Iterator[SearchEntry]:
    """Yield the entries of a form; `show` brings its page to the front."""
    yield from _settings(form, show)
    yield SearchEntry(
        "setting.device",
        "Set device (Run)",
        partial(_edit, show, form.device),
        "Training setting",
        ("device",),
        icon="chip",
    )
    yield from _choices(form, show)
    yield from _data(form, show)


def _settings(form: TrainingForm, show: Callable[[], object]) -> Iterator[SearchEntry]:
    for fields in form.findChildren(ParamForm):
        section = _around(fields, Section)
        title = section.title() if isinstance(section, Section) else ""
        for name, row in fields.rows.items():
            yield SearchEntry(
                f"setting.{name}",
                f"Set {name}" + (f" ({title})" if title else ""),
                partial(_edit, show, row),
                "Training setting",
                (name,),
                f"preferences {getattr(row.param, 'doc', '')}",
                "inspector",
            )


def _choices(form: TrainingForm, show: Callable[[], object]) -> Iterator[SearchEntry]:
    for kind, names, section in (
        ("Optimizer", OPTIMIZERS, form.optimizer),
        ("Loss", tuple(LOSSES), form.loss),
        ("Schedule", SCHEDULERS, form.schedule),
    ):
        for name in names:
            yield _entry(
                f"{kind.lower()}.{name}",
                f"Use {name} as {kind.lower()}",
                kind,
                name,
                show,
                section.name,
                partial(section.choose, name),
            )
    for name, score in SCORES.items():
        yield _entry(
            f"metric.{name}",
            f"Measure {score.label} after each epoch",
            "Metric",
            score.label,
            show,
            form.metrics,
            partial(form.metrics.choose, name, True),
            score.doc,
        )


def _data(form: TrainingForm, show: Callable[[], object]) -> Iterator[SearchEntry]:
    for key, spec in SOURCES.items():
        yield _entry(
            f"data.{key}",
            f"Train on {spec.label}",
            "Data",
            spec.label,
            show,
            form.data.source,
            partial(form.data.begin, key),
            spec.summary,
        )
    for name, kind in KINDS.items():
        yield _entry(
            f"transform.{name}",
            f"Add the transform {name}",
            "Transform",
            name,
            show,
            form.data.training_transforms,
            partial(form.data.training_transforms.put, name),
            f"augmentation {kind.doc}",
        )


def _entry(
    key: str,
    text: str,
    kind: str,
    name: str,
    show: Callable[[], object],
    widget: QWidget,
    choose: Callable[[], object],
    words: str = "",
) -> SearchEntry:
    def does() -> None:
        _edit(show, widget)
        choose()

    return SearchEntry(key, text, does, kind, (name,), words, "inspector")


def _edit(show: Callable[[], object], target: QWidget | ParamRow) -> None:
    """Bring a field of the page into sight, and put the caret into it; a folded section makes its editors as it
    opens."""
    show()
    inside = target.name if isinstance(target, ParamRow) else target
    section = inside if isinstance(inside, Section) else _around(inside, Section)
    if isinstance(section, Section):
        section.set_open(True)
    if isinstance(target, ParamRow):
        target.reveal()
    field = target.editor if isinstance(target, ParamRow) else target
    if field is None:
        return
    area = _around(field, QScrollArea)
    if isinstance(area, QScrollArea):
        area.ensureWidgetVisible(field)
    field.setFocus()


def _around(widget: QWidget, kind: type[QWidget]) -> QWidget | None:
    above = widget.parentWidget()
    while above is not None and not isinstance(above, kind):
        above = above.parentWidget()
    return above
