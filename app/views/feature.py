"""Features: units that contribute pages, commands and overlays. Each is found in the `feature.py` of its folder.

A feature is made with a workspace and nothing else, and reaches other features through it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from inspect import isclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct
from PySide6.QtCore import QMimeData, QObject
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMenu, QWidget

from app.util import shelf
from app.views.ui import icons

if TYPE_CHECKING:
    from app.views.actions import Actions
    from app.views.ui.dialogs.search import SearchEntry
    from app.views.workspace import Workspace

Shortcut = str | QKeySequence.StandardKey | tuple[str, ...]


class Page(Struct, frozen=True):
    """A page under a tab of a dock: "left", "right", "bottom" or "centre".

    `make` creates the widget: with the window if `early`, else when the page is first shown, together with the other
    pages of its feature. Tabs are ordered by feature, or put `after` the tab of another page; the tab of a page that
    `counts` has room for a badge. `controls` returns the widget beside the tabs while the page is in front, `home` the
    one that gets the keys when the focused widget is gone. `words` is the page's entry in the View menu. In the left
    dock, a page with a `width` is that wide at least, and as high as the window, while it is in front.
    """

    key: str
    title: str
    icon: str
    dock: str
    make: Callable[[], QWidget]
    after: str = ""
    early: bool = False
    counts: bool = False
    words: str = ""
    shortcut: str = ""
    edge: str = ""
    controls: Callable[[], QWidget] | None = None
    home: Callable[[], QWidget] | None = None
    width: int = 0

    def __post_init__(self) -> None:
        if (
            self.icon not in icons.names()
        ):  # checked here: an exception while painting would be lost
            raise ValueError(
                f"Page {self.key!r} has the icon {self.icon!r}. There are: {', '.join(icons.names())}"
            )


class Action(Struct, frozen=True):
    """A command: `does` is called without arguments; if `late`, only after the pages of its feature exist.

    It stands in a group of `app.views.menus`, as "file.save", below the command `after`, else at its end. One without
    `text` has no menu entry and is for other features to trigger, with arguments.
    """

    key: str
    text: str
    does: Callable[..., object]
    shortcut: Shortcut = ""
    icon: str = ""
    tip: str = ""
    late: bool = False
    enabled: bool = True
    menu: str = ""
    after: str = ""


class Adopted(Struct, frozen=True):
    """A command that a view or the undo stack has made; it can be searched for where it is `listed`, and without a
    group stands in no menu."""

    key: str
    action: QAction
    listed: bool = True
    menu: str = ""


class Submenu(Struct, frozen=True):
    """A menu in a menu, filled by its feature."""

    key: str
    text: str
    fill: Callable[[Actions, QMenu], object]
    menu: str


class Feature(QObject):
    """Base class: override the contributions. `rank` orders features, both their creation and their tabs.

    The pages of a feature that `follows` the project or a run, shown or not, are made right after the first painting.
    """

    rank: ClassVar[int] = 1000
    follows: ClassVar[bool] = False

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace.window)
        self.workspace = workspace

    def pages(self) -> Iterable[Page]:
        """Return the pages."""
        return ()

    def actions(self) -> Iterable[Action | Adopted | Submenu]:
        """Return the commands and menus."""
        return ()

    def overlays(self) -> Iterable[str]:
        """Return the overlays that the feature can draw over the nodes of the canvas."""
        return ()

    def beginnings(self) -> Iterable[SearchEntry]:
        """Return what the page to start from lists, by its kind; no page of the feature need be there."""
        return ()

    def searched(self) -> Iterable[SearchEntry]:
        """Return what Ctrl+K finds beside the commands."""
        return self.beginnings()

    def begin(self) -> None:
        """Connect signals at start-up; menus, docks and early pages exist."""

    def finish(self) -> None:
        """Connect the pages that are not early, once they are made, and show on them what was missed."""

    def drop(self, data: QMimeData) -> Callable[[], object] | None:
        """Return what accepts data dragged over the window, None if this feature does not."""
        return None

    def close(self) -> None:
        """Cancel running work: the window closes."""


def guarded(kind: type[Feature]) -> AbstractContextManager[None]:
    """Return what calls code of a feature in: of one of another package, what it raises is noted on the shelf."""
    package = shelf.plugin_of(kind.__module__)
    return shelf.noting(package) if package else nullcontext()


def made(workspace: Workspace) -> Iterator[Feature]:
    """Yield the features, those of other packages only if they say what they contribute."""
    for kind in feature_classes():
        with guarded(kind):
            owner = kind(workspace)
            if shelf.plugin_of(kind.__module__):
                _ = [*owner.pages(), *owner.actions(), *owner.overlays()]
            yield owner


def feature_classes() -> list[type[Feature]]:
    """Return the class of each `feature.py` on the shelf, below this folder, and in other packages, by rank."""
    here = Path(__file__).parent
    feature_files = sorted(here.glob("*/**/feature.py"))
    names = [
        ".".join((__package__, *file.relative_to(here).with_suffix("").parts))
        for file in feature_files
    ]
    own = map(import_module, (*names, *shelf.modules("feature")))
    classes = [
        value
        for module in (*own, *shelf.plugin_modules("feature"))
        for value in vars(module).values()
        if isclass(value)
        and issubclass(value, Feature)
        and value.__module__ == module.__name__
    ]
    return sorted(classes, key=lambda kind: kind.rank)
