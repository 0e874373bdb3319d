"""What a watched script can be commanded between two steps: pause, step, set a rate, save, capture the next, ..."""

# A whole, which its parts import for type checkers alone: a capture is asked for by an action.
from __future__ import annotations

import _thread
import gc
import math
import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tapedeck import devices, frames, models, ranks
from tapedeck.capture import Capturing
from tapedeck.commands import SILENCE, Client, CommandSocket

if TYPE_CHECKING:
    from tapedeck.watcher import Watcher

LOOK_EVERY = 0.5  # seconds between two checks, while the script is paused, that the client which paused it is connected
_SCALED = (
    "initial_lr",
    "max_lr",
    "min_lr",
)  # of a group, by which schedules compute its rate


class ActionError(Exception):
    """Raised for a command that cannot be done; the text is the answer."""

    code = "script_action"


class Hold:
    """Pauses a script from its first step on, as a client does that then is silent: who asked for it takes over."""

    open = True

    def __init__(self) -> None:
        self.heard = monotonic()


class Actions:
    """Executes the commands received over `listening`; the script waits while `paused`."""

    def __init__(self, watcher: Watcher, listening: CommandSocket) -> None:
        self.listening = listening
        self._watcher = watcher
        self._pausers: set[Client | Hold] = set()
        self._credits = 0  # steps that may be taken while paused
        self.stops = False  # the script was told to end
        self.capturing = Capturing(watcher, self)

    @property
    def paused(self) -> bool:
        return bool(self._pausers)

    def hold(self) -> None:
        """Pause the script after this step, for SILENCE seconds at most without a client that pauses it."""
        self._pausers.add(Hold())

    def obey(self, main: bool) -> float:
        """Execute pending commands; return the seconds for which the script was paused. Only a step of the `main`
        optimizer uses up what "step" has allowed.
        """
        self.do_all(0.0)
        if not self._pausers or self.capturing.armed:
            return 0.0
        if self._credits:
            self._credits -= main
            if self._credits or not main:
                return 0.0
        began = perf_counter()
        self._watcher.file.tell(frames.Paused(1, self._watcher.step))
        patience = ranks.patience()
        while self._pausers and not self._credits and not self.capturing.armed:
            self.do_all(LOOK_EVERY)
            if perf_counter() - began > patience:
                self._pausers.clear()
                self._watcher.say(ranks.went_on())
        self._watcher.file.tell(frames.Resumed(1, self._watcher.step))
        return perf_counter() - began

    def do_all(self, timeout: float) -> None:
        """Execute the commands that arrive within `timeout` seconds."""
        for client, command in self.listening.poll(timeout):
            number = command.get("id")
            action = ACTIONS.get(str(command.get("do")))
            try:
                if action is None:
                    raise ActionError(
                        f"There is no such command; there are {', '.join(ACTIONS)}."
                    )
                answer = action(self, client, command)
            except (
                ActionError,
                OSError,
                ValueError,
                TypeError,
                KeyError,
                RuntimeError,
            ) as error:
                client.answer(number, error=str(error) or type(error).__name__)
            else:
                if answer is not None:
                    client.answer(number, ok=True, **answer)
        self.capturing.drop_orphan()
        now = monotonic()
        for pauser in list(self._pausers):
            if not pauser.open or now - pauser.heard > SILENCE:
                self._pausers.discard(pauser)  # who paused the script is gone, or hangs
        if not self._pausers:
            self._credits = 0

    # -- commands -----------------------------------------------------------------------------------------------------

    def _ping(self, _client: Client, _command: dict[str, Any]) -> dict[str, Any]:
        return {"step": self._watcher.step, "paused": self.paused}

    def _pause(self, client: Client, _command: dict[str, Any]) -> dict[str, Any]:
        self._pausers.add(client)
        self._credits = 0
        return {"step": self._watcher.step}

    def _step(self, client: Client, _command: dict[str, Any]) -> dict[str, Any]:
        self._pausers.add(client)
        self._credits += 1
        self.capturing.release()
        return {"step": self._watcher.step}

    def _resume(self, _client: Client, _command: dict[str, Any]) -> dict[str, Any]:
        self._pausers.clear()
        self._credits = 0
        self.capturing.release()
        return {"step": self._watcher.step}

    def _capture(self, client: Client, command: dict[str, Any]) -> None:
        """Capture the next backward, or the first of a `step`; answered when the script is paused before it."""
        step = command.get("step")
        self.capturing.ask(
            client, command.get("id"), None if step is None else int(step)
        )

    def _engine(self, client: Client, command: dict[str, Any]) -> None:
        """Make this connection one to the engine of the captured step."""
        self.capturing.connect(client, command.get("id"))

    def _release(self, _client: Client, _command: dict[str, Any]) -> dict[str, Any]:
        """Resume from a captured step, or cancel a pending capture."""
        self.capturing.cancel("The capture was cancelled.")
        self.capturing.release()
        return {"step": self._watcher.step}

    def _interrupt(self, client: Client, command: dict[str, Any]) -> None:
        """Raise KeyboardInterrupt in the main thread, as Ctrl+C does, or call the script's own handler.

        With `saves`, a script that handles SIGTERM, as one that saves a checkpoint then, is ended by that.
        """
        if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, signal.SIG_DFL, None):
            raise ActionError(
                "The script ignores Ctrl+C. End its process where it was started."
            )
        self.stops = True
        self._pausers.clear()
        self.capturing.release()
        client.answer(
            command.get("id"), ok=True, step=self._watcher.step
        )  # before the script ends
        saves = command.get("saves") and callable(signal.getsignal(signal.SIGTERM))
        _thread.interrupt_main(signal.SIGTERM if saves else signal.SIGINT)

    def _speak(self, _client: Client, _command: dict[str, Any]) -> dict[str, Any]:
        self._watcher.speak()
        return {}

    def _rate(self, _client: Client, command: dict[str, Any]) -> dict[str, Any]:
        """Set the rate of a group: "" is the first of the main optimizer."""
        rate, name = float(command["rate"]), str(command.get("group", ""))
        if not (math.isfinite(rate) and rate > 0):
            raise ActionError("A learning rate must be a number above 0.")
        optimizer, group = self._group(name)
        before = models.rate_of(group)
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
        if before > 0:
            _scale_schedules(optimizer, group, rate / before)
        self._watcher.file.tell(frames.Rate(self._watcher.step, rate, name))
        return {"before": before}

    def _group(self, name: str) -> tuple[torch.optim.Optimizer, dict[str, Any]]:
        optimizers = self._watcher.live_optimizers()
        for optimizer_name, optimizer in optimizers.items():
            for index, group in enumerate(optimizer.param_groups):
                if name in (
                    "",
                    optimizer_name
                    if len(optimizer.param_groups) == 1
                    else f"{optimizer_name} {index}",
                ):
                    return optimizer, group
        raise ActionError(
            f"There is no parameter group {name}."
            if optimizers
            else "No optimizer has stepped yet."
        )

    def _save(self, _client: Client, command: dict[str, Any]) -> dict[str, Any]:
        """Save the state_dicts of all models and optimizers, whole or not at all."""
        watcher = self._watcher
        path = Path(command.get("path") or watcher.folder / f"step-{watcher.step}.pt")
        if path.is_dir():
            raise ActionError(f"{path} is a folder; pass a file name.")
        save(watcher, path)
        return {"path": str(path)}

    def _batch(self, client: Client, command: dict[str, Any]) -> None:
        """Describe the inputs of the next forward pass of each model; answered with the first."""
        eager_models = {
            name: model
            for name, model in self._watcher.models.items()
            if not models.is_compiled(model)
        }
        if not eager_models:
            raise ActionError(
                "The model is compiled, or not known yet: its batch cannot be read."
            )
        handles: list[Any] = []

        def before(name: str) -> Callable[..., None]:
            def hook(
                _model: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]
            ) -> None:
                for handle in handles:
                    handle.remove()
                handles.clear()
                client.answer(
                    command.get("id"),
                    ok=True,
                    model=name,
                    args=described(inputs),
                    kwargs=described(named),
                )

            return hook

        handles += [
            model.register_forward_pre_hook(before(name), with_kwargs=True)
            for name, model in eager_models.items()
        ]


ACTIONS: dict[
    str, Callable[[Actions, Client, dict[str, Any]], dict[str, Any] | None]
] = {
    "ping": Actions._ping,
    "pause": Actions._pause,
    "step": Actions._step,
    "resume": Actions._resume,
    "interrupt": Actions._interrupt,
    "speak": Actions._speak,
    "rate": Actions._rate,
    "save": Actions._save,
    "batch": Actions._batch,
    "capture": Actions._capture,
    "engine": Actions._engine,
    "release": Actions._release,
}


def _scale_schedules(
    optimizer: torch.optim.Optimizer, group: dict[str, Any], factor: float
) -> None:
    """Rescale the schedules of an optimizer in proportion to the new rate of a group."""
    index = next(
        position
        for position, candidate in enumerate(optimizer.param_groups)
        if candidate is group
    )
    for name in _SCALED:
        if name in group:
            group[name] = group[name] * factor
    schedulers = (
        candidate
        for candidate in gc.get_objects()
        if issubclass(type(candidate), torch.optim.lr_scheduler.LRScheduler)
    )
    for scheduler in schedulers:
        if getattr(scheduler, "optimizer", None) is optimizer and index < len(
            getattr(scheduler, "base_lrs", ())
        ):
            scheduler.base_lrs[index] = scheduler.base_lrs[index] * factor


def save(watcher: Watcher, path: Path) -> None:
    """Save the state_dicts of all models and optimizers, and tell so. Raises OSError."""
    state = {
        "models": {
            name: models.unwrapped(model).state_dict()
            for name, model in watcher.models.items()
        },
        "optimizers": {
            name: optimizer.state_dict()
            for name, optimizer in watcher.live_optimizers().items()
        },
        "step": watcher.step,
    }
    write_checkpoint(path, state)
    watcher.file.tell(frames.Saved(watcher.step, str(path), ""))


def write_checkpoint(path: Path, state: object) -> None:
    """Write a file of torch.save whole or not at all. Raises OSError."""
    file, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(file, "wb") as target:
            torch.save(state, target)
            target.flush()
            os.fsync(target.fileno())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def described(value: Any, depth: int = 6) -> Any:
    """Return nested values as JSON: a tensor by its dtype, shape, device and range, a sequence by its parts."""
    if isinstance(value, Tensor):
        summary: dict[str, Any] = {
            "dtype": str(value.dtype).removeprefix("torch."),
            "shape": list(value.shape),
        }
        summary["device"] = str(value.device)
        plain = value.detach()
        if (
            plain.numel()
            and plain.layout is torch.strided
            and not plain.is_complex()
            and plain.device.type != "meta"
        ):
            low, high = torch.aminmax(
                plain.to(torch.float32) if plain.dtype is torch.bool else plain
            )
            summary |= {
                "min": float(low),
                "max": float(high),
                "mean": float(devices.doubled(plain).mean()),
            }
        return summary
    if depth and isinstance(value, dict):
        return {
            str(name): described(element, depth - 1) for name, element in value.items()
        }
    if depth and isinstance(value, list | tuple):
        return [described(element, depth - 1) for element in value]
    return (
        value
        if value is None or isinstance(value, bool | int | float | str)
        else type(value).__name__
    )
