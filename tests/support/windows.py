"""A real window for a test, and its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QApplication

from app.views.settings import Settings
from app.views.ui import theme
from tests.support.whole_window import WholeWindow


@contextmanager
def shown(qapp: QApplication, name: str) -> Iterator[WholeWindow]:
    """A window with settings under `name`. What is unsaved or goes on at the end is dropped."""
    if not qapp.styleSheet():
        theme.apply(qapp, "dark")
    made = WholeWindow(Settings("TapedeckTest", name))
    made.resize(1280, 800)
    made.show()
    try:
        yield made
    finally:
        made.session.close_and_wait()
        made.document.undo_stack.setClean()
        leave(made)


def messages(window: WholeWindow) -> list[str]:
    """What it says at its bottom right from now on. On the screen a message goes by itself, however slow a test is."""
    told, show = [], window.toasts.show

    def shown_too(*given: object, **more: object) -> object:
        toast = show(*given, **more)
        told.append(toast.text())
        return toast

    window.toasts.show = shown_too
    return told


def leave(window: WholeWindow) -> None:
    """Close it and let it go, so that the next test styles one window and not all of them."""
    window.close()
    window.deleteLater()
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
