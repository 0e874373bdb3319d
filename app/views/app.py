"""The QApplication, and the handler of unexpected exceptions."""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from types import TracebackType

from PySide6.QtCore import QLocale, QObject, QSocketNotifier, QTimer, Signal
from PySide6.QtWidgets import QApplication

from app import __version__
from app.sources.spec import AskedModel
from app.util import language
from app.util.errors import speak_english
from app.views.main_window import MainWindow
from app.views.settings import Settings
from app.views.shell import appearance
from app.views.ui import icons
from app.views.ui.scaling import fit
from app.views.ui.theme import manager


class Unexpected(QObject):
    """Catches unhandled exceptions on any thread and reports them to the window instead of ending the program."""

    happened = Signal(str, str)

    def install(self) -> None:
        sys.excepthook = self._hook

    def _hook(
        self,
        kind: type[BaseException],
        error: BaseException,
        trace: TracebackType | None,
    ) -> None:
        text = "".join(traceback.format_exception(kind, error, trace))
        print(text, file=sys.stderr)
        if not issubclass(kind, KeyboardInterrupt):
            self.happened.emit(f"{kind.__name__}: {error}", text)


class Terminated(QObject):
    """Ends the window at the first SIGTERM or SIGHUP, as at the end of a desktop session; a second one ends the process
    at once. One that is ignored, as by `nohup`, stays ignored.
    """

    happened = Signal()
    NAMES = ("SIGTERM", "SIGHUP")

    def install(self) -> None:
        """Follow the signals. Qt's loop runs no Python code, so that it is woken through a socket."""
        numbers = [
            getattr(signal, name) for name in self.NAMES if hasattr(signal, name)
        ]
        self._numbers = [
            number
            for number in numbers
            if signal.getsignal(number) not in (signal.SIG_IGN, None)
        ]
        self._woken, self._wakes = socket.socketpair()
        self._wakes.setblocking(False)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        self._notifier = QSocketNotifier(
            self._woken.fileno(), QSocketNotifier.Type.Read, self
        )
        self._notifier.activated.connect(self._read)
        for number in self._numbers:
            signal.signal(number, lambda *_: None)

    def _read(self) -> None:
        if {*self._woken.recv(64)} & {*self._numbers}:
            for number in self._numbers:
                signal.signal(number, signal.SIG_DFL)
            self.happened.emit()


# Interval after which a busy thread hands over the interpreter lock. A paint releases and takes it dozens of times; at
# Python's 5 ms each of them may wait that long for a worker.
SWITCH = 0.0005


def make_application(arguments: list[str] | None = None) -> QApplication:
    """Return the QApplication with the program's name, icon and theme; sets the interpreter's switch interval."""
    sys.setswitchinterval(SWITCH)
    existing = QApplication.instance()
    application = (
        existing
        if isinstance(existing, QApplication)
        else QApplication(arguments or sys.argv[:1])
    )
    speak_english()
    application.setApplicationName("Tapedeck")
    application.setOrganizationName("Tapedeck")
    application.setApplicationVersion(__version__)
    application.setDesktopFileName("tapedeck")
    application.setWindowIcon(icons.app_icon())
    return application


def choose_language(settings: Settings) -> None:
    """Have this process and its engines speak the language of the settings, else that of the system."""
    code = settings.language
    if not code and not any(map(os.environ.get, language.VARIABLES)):
        code = QLocale.system().name()  # Windows has no such variables
    if code:
        language.choose(code)


def run_window(file: str | None, model: AskedModel | None = None) -> int:
    """Open the window, with a project or on a model if one is named, and return when it is closed."""
    application = make_application()
    settings = Settings()
    choose_language(settings)
    appearance.apply(application, settings)
    window = MainWindow(settings)
    unexpected = Unexpected(window)
    unexpected.happened.connect(window.notifier.show_unexpected)
    unexpected.install()
    terminated = Terminated(window)
    terminated.happened.connect(window.end)
    terminated.install()
    fit(window, manager().scale)
    window.bound_to(window.screen().availableSize())
    window.show()
    window.open_on(file, model)
    QTimer.singleShot(0, lambda: window.actions_by_key.trigger("offer-unsaved"))
    # Hidden pages are created after the project has been opened and painted.
    QTimer.singleShot(0, lambda: QTimer.singleShot(0, window.start))
    status = application.exec()
    if (
        application.platformName() == "offscreen"
    ):  # it frees what was copied after the interpreter, which that may call
        application.clipboard().clear()
    return status
