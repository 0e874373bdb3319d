"""Watch this process: `watch` by hand, `prepare` for `tapedeck run`, which waits for the script to import torch."""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.machinery
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from time import monotonic
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from tapedeck import exits, ranks, resuming
from tapedeck.commands import Client, CommandSocket
from tapedeck.frames import (
    DONE,
    FRAMES,
    TRY_AGAIN,
    Ending,
    FrameFile,
    Said,
    Script,
    new_folder,
)

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from tapedeck.hooks import Hooks
    from tapedeck.watcher import Watcher


CAPTURE_ASKED = 60.0  # seconds
WAITS = "The script has ended for its queue, and goes on as soon as the job is started again."
STOPPED = Ending("stopped", "The script was stopped, and has saved a checkpoint.")


class Watch:
    """A script that is watched. `frames` is the file that a window reads: `tapedeck FRAMES`.

    Ends with `stop`, with the `with` block, or with the process.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.frames = folder, folder / FRAMES
        self._process = os.getpid()
        self._file = FrameFile(self.frames)
        self._watcher: Watcher | None = None
        self._hooks: Hooks | None = None
        self._ended = False
        self._waited = False  # a capture was asked for before the script began
        self.rank = ranks.rank()
        self._listening: CommandSocket | None = None
        try:
            self._listening = CommandSocket(folder)
        except OSError:
            pass  # it is watched, and cannot be commanded
        arguments = [] if _is_kernel() else sys.argv[1:]
        world, job = ranks.job()
        self._status: Any = None  # that the script ends with by itself
        self._death = ""  # what has ended the thread that trains
        self._resuming: resuming.Resuming | None = None
        if os.environ.get(resuming.FOLDER) and world == 1:
            self._resuming = resuming.Resuming(self.frames)
        listens = self._listening is not None
        self._file.tell(
            Script([name, *arguments], os.getpid(), self.rank, world, job, listens)
        )
        atexit.register(self._process_ends)
        self._exits = exits.Exits(self._leaves, self._thread_dies)
        self._notebook = _notebook()
        if self._notebook is not None:
            self._notebook.events.register("post_run_cell", self._cell_ended)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def begin(
        self,
        named_models: Mapping[str, nn.Module] | None = None,
        only: Iterable[Optimizer] | None = None,
    ) -> None:
        """Put the hooks in place; torch is loaded by now."""
        from tapedeck.hooks import Hooks
        from tapedeck.watcher import Watcher

        if self._ended or self._watcher is not None:
            return
        self._watcher = Watcher(
            self._file,
            self._listening,
            speaking=self.rank == 0,
            known=named_models,
            only=only,
            resuming=self._resuming,
        )
        self._hooks = Hooks(self._watcher)
        if self._waited and self._watcher.actions is not None:
            self._watcher.actions.do_all(0.0)

    def wait_for_capture(self) -> None:
        """Wait for a capture request, CAPTURE_ASKED seconds at most."""
        listening, until = self._listening, monotonic() + CAPTURE_ASKED
        if listening is None:
            return
        commands: list[tuple[Client, dict[str, Any]]] = []
        while not self._waited and monotonic() < until:
            commands += listening.poll(0.1)
            self._waited = any(
                command.get("do") == "capture" for _, command in commands
            )
        listening.keep(commands)

    def stop(self, ending: Ending = DONE) -> None:
        """Stop watching: remove the hooks and write pending frames."""
        if self._ended:
            return
        self._ended = True
        atexit.unregister(self._process_ends)
        self._exits.remove()
        if self._notebook is not None:
            self._notebook.events.unregister("post_run_cell", self._cell_ended)
        if self._hooks is not None:
            self._hooks.remove()
        if self._watcher is not None:
            self._watcher.finish(ending)
        else:
            self._file.tell(ending.frame(0))
            self._file.close()
            if self._listening is not None:
                self._listening.close()

    def exiting(self, error: SystemExit) -> None:
        """Keep what the script exits with; its watching ends with the process."""
        self._status = error.code

    def failed(self, error: BaseException) -> None:
        """End watching with the exception that ended the script."""
        self.stop(exits.by_exception(error))

    def _process_ends(self) -> None:
        """End watching with the process, by its status or by what ended it."""
        error = exits.unhandled()
        if error is not None and self._status is None and self._notebook is None:
            self.failed(error)
        else:
            self.stop(self._ending(self._status))

    def _ending(self, code: object) -> Ending:
        """Return how a script ended that exits so; it may have outlived the thread that trained."""
        if self._resuming is not None and code == TRY_AGAIN:
            actions = self._watcher and self._watcher.actions
            return (
                STOPPED if actions and actions.stops else Ending(note=WAITS, again=True)
            )
        ending = exits.by_status(code)
        return Ending(error=self._death) if self._death and ending is DONE else ending

    def _leaves(self, status: int) -> None:
        """End watching before `os._exit`; nobody waits for an accelerator, which may be why the script leaves."""
        if self._ended:
            return
        ending = self._ending(status)
        watcher = self._watcher
        if watcher is None or not watcher.fetches:
            self.stop(ending)
        else:
            self._file.tell(ending.frame(watcher.step))

    def _thread_dies(
        self, error: BaseException, thread: threading.Thread | None
    ) -> None:
        """Tell what has ended a thread; that of the thread that trains is the end, unless a status says otherwise."""
        if self._ended or thread is None:
            return
        watcher = self._watcher
        text = f"{type(error).__name__}: {error}"
        if watcher is not None and thread.ident == watcher.thread:
            self._death = f"{text} (in the thread {thread.name})"
        else:
            step = watcher.step if watcher is not None else 0
            self._file.tell(Said(step, f"The thread {thread.name} ended with {text}"))

    def _cell_ended(self, *_result: Any) -> None:
        """Write the pending frames at the end of a notebook cell."""
        if self._watcher is not None:
            self._watcher.catch_up()

    def _forked(self) -> None:
        """In a forked process: neither the file nor the socket is its own."""
        if self._ended:
            return
        self._ended = True
        self._exits.remove()
        if self._hooks is not None:
            self._hooks.remove()
        self._file.close()
        if self._resuming is not None:
            self._resuming.leave()
        if self._listening is not None:
            self._listening.close(remove=False)

    def __repr__(self) -> str:
        return f"<Watch{' that has ended' * self._ended}: tapedeck {self.frames}>"

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: Any, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            self.failed(error)


_now: list[Watch] = []
_KERNEL = "ipykernel_launcher.py"


def _is_kernel() -> bool:
    """Return whether this process runs the cells of a notebook."""
    return bool(sys.argv) and Path(sys.argv[0]).name == _KERNEL


def _script_name() -> str:
    if _is_kernel():
        return (
            Path(os.environ.get("JPY_SESSION_NAME", "")).name or "notebook"
        )  # that Jupyter tells its kernels
    return Path(sys.argv[0] if sys.argv else "").name or "python"


def _notebook() -> Any:
    """Return the shell of IPython that runs the cells of this process, None if none does."""
    shell = sys.modules.get("IPython")
    return shell.get_ipython() if shell is not None else None


def watch(
    model: nn.Module | Mapping[str, nn.Module] | None = None,
    optimizer: Optimizer | Iterable[Optimizer] | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    quiet: bool = False,
) -> Watch:
    """Start watching the training in this process: losses, learning rates, norms of gradients, memory.

    Args:
        model: a model, or several by name, by which layers are named; without, they are found by their parameters.
        optimizer: the optimizers whose steps are measured; all by default.
        folder: where the frames go; without, a new one of the user's.
        quiet: do not print where it can be watched.

    Returns:
        The `Watch`; `stop` ends it. One watch at a time: an earlier one is ended.

    Raises:
        OSError: the folder cannot be written.
    """
    for earlier in _now:
        earlier.stop()
    _now.clear()
    script = _script_name()
    frames_folder = Path(folder) if folder is not None else new_folder(script)
    if folder is not None and ranks.job()[1] and ranks.rank():
        frames_folder /= f"rank-{ranks.rank()}"  # each has its own frames
    frames_folder.mkdir(parents=True, exist_ok=True)
    session = Watch(frames_folder, script)
    named = (
        model
        if isinstance(model, Mapping)
        else {}
        if model is None
        else {_name(model): model}
    )
    optimizers = (
        None
        if optimizer is None
        else list(optimizer)
        if isinstance(optimizer, Iterable)
        else [optimizer]
    )
    session.begin(named, optimizers)
    _now.append(session)
    if not quiet and session.rank == 0:
        print(f"tapedeck: watched in {session.frames}", file=sys.stderr)
    return session


def _name(model: nn.Module) -> str:
    from tapedeck.models import unwrapped, variable_of

    return variable_of(model) or type(unwrapped(model)).__name__


def prepare(folder: Path, name: str, captured: bool = False) -> Watch:
    """Have this process watched as soon as it has imported torch, which it may never do; with `captured`, first wait
    until a step to be captured has been asked for.
    """
    session = Watch(folder, name)
    _now.append(session)
    if captured:
        session.wait_for_capture()
    if "torch" in sys.modules:
        session.begin()
    else:
        sys.meta_path.insert(0, _AfterTorch(session.begin))
    return session


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Finds torch as the others do, and has `then` called when it has been imported."""

    def __init__(self, then: Callable[[], object]) -> None:
        self._then = then

    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        loader: Any = spec.loader if spec is not None else None
        if loader is None or not hasattr(loader, "exec_module"):
            return spec
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            load(module)
            self._then()

        loader.exec_module = exec_module
        return spec
