"""What every test starts from: no display, folders of its own, few threads, and no fault that goes unheard.

Qt's warnings fail a test, and so does an exception in a thread (see `[tool.pytest.ini_options]`); a test that hangs
prints where every thread stands.
"""

from __future__ import annotations

import builtins
import faulthandler
import gc
import importlib
import itertools
import math
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TextIO

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from _pytest.terminal import TerminalReporter
from hypothesis import HealthCheck, settings
from pytestqt.qtbot import QtBot

from app.util import gc_pause
from tests.support import script_here

if TYPE_CHECKING:
    from app.views.engine_service import EngineService
    from tests.support.shared_window import SharedWindow
    from tests.support.whole_window import WholeWindow

THREADS = (
    1 if "PYTEST_XDIST_WORKER" in os.environ else 2
)  # of torch; beside others, one each
PATIENCE = 300_000  # milliseconds; a wait that takes so long is a hang on any machine, however busy
LOOK = 10  # milliseconds from one look to the next, at most
HANGS = 600  # seconds that no test takes
STACKS = "TAPEDECK_TEST_STACKS"  # the folder in which workers write where they hang
FONTS = "MPLCONFIGDIR"  # the folder in which matplotlib keeps what it found
_watched = {"since": -math.inf}  # since when it is seen to that no test hangs

# Before Qt and torch are loaded by anybody, and for every process that a test starts.
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ["TAPEDECK_LANGUAGE"] = "en"  # in every locale
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(THREADS)
# Threads that wait sleep: those that spin take the processors from who they wait for, which is another process here.
os.environ["OMP_WAIT_POLICY"] = "passive"

# What is compiled once serves the other worker, each process that a test starts and the next run of the suite, also
# where the image of a container has Python keep nothing.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# PySide takes over `import`, for a feature that nobody here uses; torch imports within functions that are called often.
_import = builtins.__import__
importlib.import_module("PySide6.QtCore")
builtins.__import__ = _import

if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ[STACKS] = tempfile.mkdtemp(prefix="stacks-")
    # Torchmetrics loads it; in each new home it would look through the fonts for seconds, and say so where it is slow.
    os.environ[FONTS] = tempfile.mkdtemp(prefix="matplotlib-")

# Nearly all that is made until the tests begin stays; see `pytest_collection_finish`.
gc.disable()

# A shell has its background jobs ignore Ctrl+C, and what they start inherits that.
if (
    threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) == signal.SIG_IGN
):
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes to be made says more of the machine than of the test.
UNHURRIED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
settings.register_profile(
    "here", max_examples=25, deadline=None, suppress_health_check=UNHURRIED
)  # others each time
settings.register_profile(
    "ci",
    settings.get_profile("here"),
    max_examples=60,
    derandomize=True,
    print_blob=True,
)
settings.load_profile("ci" if os.environ.get("CI") else "here")


_shared_window: list[SharedWindow] = []  # the one of this process, if a test wanted it


class Homes:
    """Folders of tests, one after the other. One in which nobody left anything serves the next test too."""

    PARTS = ("config", "data", "cache", "state")

    def __init__(self, above: Path) -> None:
        # (`mktemp` looks through all that are there, for each of thousands.)
        self._new = (above / str(number) for number in itertools.count())
        self._now: Path | None = None

    def untouched(self) -> Path:
        if self._now is None or not self._is_empty(self._now):
            self._now = self._make()
        return self._now

    def _is_empty(self, home: Path) -> bool:
        """Whether it is as it was made."""
        try:
            return len(os.listdir(home)) == len(self.PARTS) and not any(
                os.listdir(home / part) for part in self.PARTS
            )
        except OSError:
            return False

    def _make(self) -> Path:
        from PySide6.QtCore import QSettings

        home = next(self._new)
        home.mkdir()
        os.environ["HOME"] = os.environ["USERPROFILE"] = str(home)
        for part in self.PARTS:
            (home / part).mkdir()
            os.environ[f"XDG_{part.upper()}_HOME"] = str(home / part)
        # Qt remembers the folder of its settings from the first use on, so it must be told each time.
        for form in (QSettings.Format.NativeFormat, QSettings.Format.IniFormat):
            QSettings.setPath(form, QSettings.Scope.UserScope, str(home / "config"))
        return home


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Iterator[None]:
    """Skip a test that takes a part of a feature whose folder was taken from the shelf; see `scripts.remove_one`."""
    from tests.support.whole_window import NotOnShelfError

    try:
        return (yield)
    except NotOnShelfError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Homes:
    return Homes(tmp_path_factory.mktemp("homes"))


@pytest.fixture(scope="session")
def installed_packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder from which every process imports, that of the fork server too: what a test puts there is installed."""
    folder = tmp_path_factory.mktemp("packages")
    with pytest.MonkeyPatch.context() as session:
        session.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        session.syspath_prepend(folder)
        yield folder


@pytest.fixture(scope="session")
def pool_of_processes(installed_packages: Path) -> Iterator[ModuleType]:
    """Whose fork server ends with the tests."""
    from app.engine import pool

    yield pool
    pool.close()


@pytest.fixture(autouse=True)
def fork_server(pool_of_processes: ModuleType) -> None:
    """One for all tests, from the first that needs a process on: a fresh process loads torch, for seconds."""
    pool_of_processes.prepare(later=True)


@pytest.fixture(autouse=True)
def own_folders(homes: Homes) -> Path:
    """A home, settings and caches of the test's own: nothing of the person's is read, nothing of it is touched."""
    return homes.untouched()


@pytest.fixture(autouse=True)
def same_torch() -> Iterator[None]:
    """A test that changes torch's thread count, modes or choice of algorithms must not be noticed by the next."""
    yield
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(THREADS)
        torch.set_grad_enabled(True)
        if (
            torch.are_deterministic_algorithms_enabled()
        ):  # a script of a run says so, for all that follows it
            torch.use_deterministic_algorithms(False)
    if dynamo := sys.modules.get("torch._dynamo.utils"):
        dynamo.counters.clear()  # by which a captured step is taken for a compiled one


@pytest.fixture(autouse=True)
def same_imports() -> Iterator[None]:
    """A test that loads a user's code here restricts what else is imported, as an engine does for good, and its folder
    stays on the path, where its files would shadow those of the next: a process for them could not be forked.

    So does a fixture of a whole module, which is made before this one.
    """
    forget_own_code()
    path = sys.path[:]
    yield
    forget_own_code()
    sys.path[:] = path


def forget_own_code() -> None:
    """Drop the modules of a user that were loaded here, and let all modules be imported again."""
    for finder in sys.meta_path:
        for name in getattr(finder, "ran", ()):
            sys.modules.pop(name, None)
    sys.meta_path[:] = script_here.finders_of_python()


@pytest.fixture(autouse=True)
def same_folder() -> Iterator[None]:
    """A test that answers in this process what an engine answers changes the folder, as the engine does."""
    before = os.getcwd()
    yield
    os.chdir(before)


@pytest.fixture(scope="session")
def qapp(qapp):
    """As the program has it."""
    from app.util.errors import speak_english

    speak_english()
    return qapp


@pytest.fixture
def service(qapp) -> Iterator[EngineService]:
    """Asks the engine of this process, as a window does."""
    from app.views.engine_service import EngineService

    made = EngineService()
    yield made
    made.close()


class PatientBot(QtBot):
    """Waits for what is to come as long as a busy machine may need: five seconds, as is usual, are few."""

    def waitUntil(self, callback, *, timeout=PATIENCE):
        """Counts its looks and not the time: it may be the machine that stands still, and everybody on it.

        Most of what is waited for comes at once, so the first looks follow one another soon.
        """
        for look in range(LOOK + timeout // LOOK):
            with suppress(AssertionError):
                if (found := callback()) is None or found:
                    return
            self._go_on(min(look + 1, LOOK))
        return super().waitUntil(callback, timeout=0)

    @staticmethod
    def mouseClick(widget, *args, pos=None, **kwargs):
        """Clicks where the widget is painted next, as a hand does that sees it.

        `pos` may be what computes it: a point in a picture or a list moves when those are laid out.
        """
        from PySide6.QtCore import QCoreApplication, QEvent

        QCoreApplication.sendPostedEvents(None, QEvent.Type.LayoutRequest)
        if pos is not None:
            kwargs["pos"] = pos() if callable(pos) else pos
        QtBot.mouseClick(widget, *args, **kwargs)

    def _go_on(self, milliseconds):
        """Run the event loop, as `wait` does; that takes a millisecond for itself."""
        from PySide6.QtCore import QEventLoop, QTimer

        loop = QEventLoop()
        QTimer.singleShot(milliseconds, loop.quit)
        loop.exec()

    def waitSignal(self, signal, *, timeout=PATIENCE, **more):
        return super().waitSignal(signal, timeout=timeout, **more)

    def waitSignals(self, signals, *, timeout=PATIENCE, **more):
        return super().waitSignals(signals, timeout=timeout, **more)

    def waitActive(self, widget, *, timeout=PATIENCE):
        return super().waitActive(widget, timeout=timeout)

    def waitExposed(self, widget, *, timeout=PATIENCE):
        return super().waitExposed(widget, timeout=timeout)


@pytest.fixture
def qtbot(qapp, request: pytest.FixtureRequest) -> Iterator[PatientBot]:
    """The hands of a test. What it leaves is put away: each theme after it would style that too."""
    from PySide6.QtCore import QEvent
    from PySide6.QtGui import QCursor

    QCursor.setPos(
        9_999, 9_999
    )  # where the last test left the mouse, something of this one may come to lie
    if section := sys.modules.get("app.views.ui.widgets.section"):
        section.set_folds({})  # those that the last test folded, of whatever title
    before = set(qapp.topLevelWidgets())
    yield PatientBot(request)
    shared = {each.window for each in _shared_window}
    for widget in set(qapp.topLevelWidgets()) - before - shared:
        if type(widget).__name__ == "WholeWindow":
            widget.session.close_and_wait()
            widget.document.undo_stack.setClean()
            widget.close()
            widget.deleteLater()
        elif (
            type(widget).__name__ in ("Button", "QLabel")
            and widget.parent() is None
            and widget.isHidden()
        ):
            widget.deleteLater()  # a part of a page that Qt has deleted and Python has not
        else:
            continue
        qapp.sendPostedEvents(widget, QEvent.Type.DeferredDelete)


@pytest.fixture(scope="session")
def shared_window() -> Iterator[SharedWindow]:
    from tests.support.shared_window import SharedWindow

    _shared_window.append(SharedWindow())
    yield _shared_window[0]
    _shared_window.pop().drop()


@pytest.fixture
def window(
    qtbot: PatientBot, qapp, shared_window: SharedWindow
) -> Iterator[WholeWindow]:
    """The window with all its pages, an empty project and torch behind it: one for many tests, put back between them.

    A file has a fixture of this name that opens what its tests want. What tests how a window begins makes its own.
    """
    yield shared_window.lend(qtbot, qapp)
    shared_window.take_back()


_collects = {"here": False}
_kept = {"modules": 0}  # that no collection looks through


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Iterator[None]:
    """Qt's objects that are in reference cycles are destroyed on this thread, as in the program, between two tests."""
    if "qapp" in getattr(item, "fixturenames", ()) and not _collects["here"]:
        gc_pause.begin()
        _collects["here"] = True
    if not _collects["here"]:
        _keep_new_modules()
    result = yield
    if _collects["here"] and "qapp" in getattr(nextitem, "fixturenames", ("qapp",)):
        gc_pause.collect_due()
    elif _collects["here"]:
        gc.collect()
        gc_pause.end()
        _collects["here"] = False
    return result


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those with Qt come after the others, and those that share the window last: it goes before one that has none."""
    items.sort(
        key=lambda item: sum(
            name in getattr(item, "fixturenames", ())
            for name in ("qapp", "shared_window")
        )
    )


def pytest_collection_finish() -> None:
    """What is imported and collected stays to the end: no test that looks for garbage looks through all of it."""
    gc.freeze()  # with what little was left over until now: to look for that takes half a second
    _kept["modules"] = len(sys.modules)
    gc.enable()


def _keep_new_modules() -> None:
    """So does what the tests import, torch's compiler above all."""
    if len(sys.modules) > _kept["modules"] + gc_pause.MODULES:
        gc.collect()
        gc.freeze()
        _kept["modules"] = len(sys.modules)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that hangs prints where every thread stands, and ends this process.

    As `faulthandler_timeout` does it; but that starts a thread for each of thousands of tests and waits for its end.
    """
    if (now := time.monotonic()) - _watched["since"] > HANGS / 10:
        if "PYTEST_XDIST_WORKER" in os.environ:
            file: int | TextIO = _stacks()
        else:
            file = item.config.stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(HANGS, file=file, exit=True)
        _watched["since"] = now


@cache
def _stacks() -> TextIO:
    """The file of this worker for where a hang stood, which the process that started it shows at the end."""
    return Path(os.environ[STACKS], os.environ["PYTEST_XDIST_WORKER"]).open("w")


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    for file in sorted(Path(os.environ[STACKS]).iterdir()):
        if stacks := file.read_text():
            terminalreporter.section(f"where worker {file.name} hung")
            terminalreporter.write(stacks)
    shutil.rmtree(os.environ[STACKS])
    shutil.rmtree(os.environ[FONTS], ignore_errors=True)


def pytest_exception_interact() -> None:
    _watch_no_more()


def pytest_sessionfinish() -> None:
    """Nothing stays copied: a platform without a clipboard frees that after the interpreter has ended, and QMimeData
    that were made here would call it then."""
    _watch_no_more()
    if (
        gui := sys.modules.get("PySide6.QtGui")
    ) and gui.QGuiApplication.instance() is not None:
        gui.QGuiApplication.clipboard().clear()


def _watch_no_more() -> None:
    faulthandler.cancel_dump_traceback_later()
    _watched["since"] = -math.inf


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """No window is left for tests that have none: each theme that they put on would style that one too."""
    if nextitem is None:
        _watch_no_more()
    shared = _shared_window
    if shared and "window" not in getattr(nextitem, "fixturenames", ()):
        shared[0].drop()


@pytest.fixture
def forked_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of layers are tried in forked processes: for tests to which that trial is no matter."""
    from app.source import layer_modules
    from tests.support.forked_python import fork_scripts

    fork_scripts(monkeypatch, layer_modules)


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that trains here draws none: that is another test's, and takes longer than a small run."""
    from app.views.pictures import headless_pictures

    monkeypatch.setattr(headless_pictures, "run_pictures", lambda *_: None)


@pytest.fixture
def nothing_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test hears of what another trusted or ran."""
    from app.source import layer_files, layer_modules

    for module, name in ((layer_files, "_allowed"), (layer_files, "_tried")):
        monkeypatch.setattr(module, name, set())
    for module, name in ((layer_modules, "_modules"), (layer_modules, "_failed")):
        monkeypatch.setattr(module, name, {})
