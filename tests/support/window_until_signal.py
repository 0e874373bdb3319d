"""The program's window in a process of its own, which a signal ends: `python -m tests.support.window_until_signal WHAT
[FILE]`. It prints "ready" when WHAT has happened in it; before that, each message of a failure as a line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from PySide6.QtCore import QTimer

from app.util import interrupts
from app.views import app
from tests.support.whole_window import WholeWindow


def ready() -> None:
    print("ready", flush=True)


def opened(window: WholeWindow) -> None:
    """Show what it began with."""
    ready()


def edited(window: WholeWindow) -> None:
    """Have unsaved work."""
    window.canvas.add_op("nn.ReLU")
    ready()


def asked(window: WholeWindow) -> None:
    """Have a question open, whose loop runs within that of the program."""
    edited(window)
    window.close()


def training(window: WholeWindow) -> None:
    """Have a run that has taken steps."""
    window.session.told.connect(
        lambda _events: ready() if len(window.session.runs[-1].history.steps) else None
    )
    window.start_run()


def watching(window: WholeWindow) -> None:
    """Watch the run that the program was started with."""
    window.session.runStarted.connect(lambda _run: ready())


def failing(window: WholeWindow) -> None:
    """Be without a torch that can be imported, try to train all the same, and wait for what is said."""
    refuse = window.notifier.refuse

    def print_too(title: str, reason: str, *action: object) -> None:
        print(f"{title}: {reason}", flush=True)
        refuse(title, reason, *action)

    window.notifier.refuse = print_too  # type: ignore[method-assign]
    window.live.torch_failed.connect(lambda _failure: window.run_control.run())
    window.live.torch_failed.connect(
        lambda _failure: QTimer.singleShot(0, window, ready)
    )


DOES: dict[str, Callable[[WholeWindow], None]] = {
    made.__name__: made for made in (opened, edited, asked, training, watching, failing)
}


class Driven(WholeWindow):
    def open_on(self, *arguments: object) -> None:
        super().open_on(*arguments)  # type: ignore[arg-type]
        if arguments[0] is None:
            self.files.open_example("digits.tape")
        does = DOES[sys.argv[1]]
        if does in (watching, failing):
            does(self)
        else:
            QTimer.singleShot(0, self, lambda: does(self))


def main() -> int:
    app.MainWindow = Driven  # type: ignore[misc]
    with interrupts.interruptible():
        return app.run_window(sys.argv[2] if len(sys.argv) > 2 else None)


if __name__ == "__main__":
    sys.exit(main())
