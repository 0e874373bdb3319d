"""Messages of the window: a toast, a banner that stays, a dialog with details."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from app.views.ui.dialogs.message import ErrorDialog
from app.views.ui.widgets.banner import Banner
from app.views.ui.widgets.focus import focus_in, go_back
from app.views.ui.widgets.toast import SECONDS, ToastStack

ACTED_SECONDS = 3 * SECONDS
EMPTY: Mapping[str, Callable[[], object]] = MappingProxyType({})


class Notifier(QObject):
    """One banner and one stack of toasts for all features; the callback of an action runs when it is clicked."""

    def __init__(self, banner: Banner, toasts: ToastStack, window: QWidget) -> None:
        super().__init__(window)
        self._banner, self._toasts, self._window = banner, toasts, window
        toasts.add_banner(banner)
        self._act: Callable[[], object] | None = None
        self._further: dict[str, Callable[[], object]] = {}
        # Predicates: whether a text is already shown somewhere more visible than the banner.
        self.told_by: list[Callable[[str], bool]] = []
        banner.acted.connect(self._acted)
        banner.chosen.connect(self._chosen)

    # -- words that go by themselves ----------------------------------------------------------------------------------

    def say(
        self,
        title: str,
        detail: str = "",
        action: str = "",
        act: Callable[[], object] | None = None,
        icon: str = "check",
    ) -> None:
        """Show a toast, with a link `action` that calls `act`, which takes a while to be read and reached."""
        seconds = ACTED_SECONDS if action else SECONDS
        self._toasts.show(
            title, detail, icon=icon, action=action, on_action=act, seconds=seconds
        )

    def take_back(self, title: str) -> None:
        """Dismiss the toasts with this title."""
        for toast in self._toasts.toasts():
            if toast.accessibleName() == title:
                toast.dismiss()

    def clear(self) -> None:
        """Take all toasts away."""
        self._toasts.clear()

    def make_way(self) -> None:
        """Place the messages again after the layout below them changed."""
        self._toasts.place_again()

    # -- banners ------------------------------------------------------------------------------------------------------

    def add_banner(self, banner: Banner) -> None:
        """Show another banner among the messages of the window, whenever it is not hidden."""
        self._toasts.add_banner(banner)

    def focus_banner(self) -> None:
        """Move the focus to the newest banner, else to that of a page: to its first action or the button that closes
        it; from there back to where it was."""
        shown = [self._toasts.banner(), *self._window.findChildren(Banner)]
        banner = next(
            (
                candidate
                for candidate in shown
                if candidate is not None and candidate.isVisible()
            ),
            None,
        )
        if banner is None:
            self.say("No message is open")
        elif not (focus_in(banner) and go_back(banner)):
            banner.take_focus()

    def refuse(
        self,
        title: str,
        reason: str,
        action: str = "",
        act: Callable[[], object] | None = None,
    ) -> None:
        """Show an error that stays until it is closed, with a button `action` that calls `act`."""
        self.show("error", title, reason, action, act)

    def warn(
        self,
        title: str,
        reason: str,
        action: str = "",
        act: Callable[[], object] | None = None,
        further: Mapping[str, Callable[[], object]] = EMPTY,
    ) -> None:
        """Show a warning that stays until it is closed."""
        self.show("warning", title, reason, action, act, further)

    def show(
        self,
        kind: str,
        title: str,
        reason: str,
        action: str = "",
        act: Callable[[], object] | None = None,
        further: Mapping[str, Callable[[], object]] = EMPTY,
    ) -> None:
        """Put something else into the banner; `act` is called when its button `action` is clicked. `further` are more
        buttons by their text."""
        self._act, self._further = act, dict(further)
        self._banner.set(kind, title, reason, action, *further)
        self._banner.show()

    def _acted(self) -> None:
        if self._act is not None:
            self._act()

    def _chosen(self, text: str) -> None:
        if text in self._further:
            self._further[text]()

    @property
    def title(self) -> str:
        """The banner's title, "" while it is hidden."""
        return "" if self._banner.isHidden() else self._banner.title()

    @property
    def reason(self) -> str:
        """The banner's reason, "" while it is hidden."""
        return "" if self._banner.isHidden() else self._banner.reason()

    def withdraw(self, title: str = "") -> None:
        """Hide the banner, or hide it if it is about `title`."""
        if not title or self._banner.title() == title:
            self._banner.hide()

    # -- dialogs ------------------------------------------------------------------------------------------------------

    def show_details(self, title: str, cure: str, trace: str) -> None:
        """Open a dialog with a traceback, one click away from its words."""

        ErrorDialog(title, cure=cure, traceback=trace, parent=self._window).open()

    def show_unexpected(self, message: str, trace: str) -> None:
        """Report an internal error. The project is unharmed: it is an immutable value."""
        self.show_details(
            "Something went wrong in Tapedeck",
            f"{message}. Your project is unchanged; save it.",
            trace,
        )
