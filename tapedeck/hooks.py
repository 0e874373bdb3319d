"""torch's global hooks: steps of all optimizers, `backward`, gradient scalers, and `torch.compile`.

No hook is put on a module: one on all of them would cost every call, and compiled modules would be recompiled.
Each function here lets an error of ours switch the watching off, never end the script, and leaves no frame
in the traceback of an error of the script. What happens at nearly every step is done in the hook itself, with as few
objects as possible: code that runs between two steps finds the processor's caches full of the script's.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.optim import optimizer as optimizers

from tapedeck.compiler_log import BreakText, CompilerLog, called_path
from tapedeck.frames import MOST_TEXT, Ending, GraphBreak, Recompiled
from tapedeck.watcher import Watcher

MOST_COMPILED = 200  # graph breaks and recompiles that are told


class Hooks:
    """Has a watcher called; `remove` puts everything back."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher: Watcher | None = watcher
        self._quick = watcher.quick
        self._depth = threading.local()
        self._unscaled: dict[
            int, tuple[weakref.ref[Tensor], Tensor]
        ] = {}  # by the id of the scaled loss
        self._replaced: list[tuple[Any, str, Any]] = []
        self._compiler_log = ScriptCompilerLog(watcher)
        self._compiler_log.attach()
        self._handles = [
            optimizers.register_optimizer_step_pre_hook(
                _uncompiled(self._before_step())
            ),
            optimizers.register_optimizer_step_post_hook(
                _uncompiled(self._after_step())
            ),
        ]
        self._replace(torch.autograd, "backward", self._backward)
        self._replace(torch.optim.Optimizer, "zero_grad", self._zero_grad)
        self._replace(torch.nn.Module, "zero_grad", self._zero_grad)
        self._replace(torch.amp.GradScaler, "scale", self._scale)
        self._replace(torch.amp.GradScaler, "step", self._scaler_step)
        self._replace(torch, "compile", self._compile)
        self._replace(warnings, "showwarning", _at_callers_line)

    def _replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        self._replaced.append((owner, name, original))
        setattr(owner, name, _uncompiled(functools.wraps(original)(make(original))))

    def remove(self) -> None:
        """Remove the hooks, and restore replaced functions unless they were replaced again since."""
        watcher, self._watcher = self._watcher, None
        self._quick.on = False
        if watcher is not None and watcher.actions is not None:
            watcher.actions.capturing.end_recording()
        self._compiler_log.detach()
        for handle in self._handles:
            handle.remove()
        for owner, name, original in self._replaced:
            if getattr(getattr(owner, name), "__wrapped__", None) is original:
                setattr(owner, name, original)

    def _failed(self, error: Exception) -> None:
        watcher, self._watcher = self._watcher, None
        self._quick.on = False
        with contextlib.suppress(Exception):
            self.remove()
        if watcher is not None:
            with contextlib.suppress(Exception):
                note = f"Watching ended with an error: {type(error).__name__}: {error}"
                watcher.finish(Ending("left", note))

    def _before_step(self) -> Callable[..., None]:
        quick = self._quick

        def before_step(
            optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> None:
            if quick.on and not quick.looks:
                return  # one with a closure, or of another optimizer, is seen after the step
            watcher = self._watcher
            if watcher is None:
                return
            try:
                closure = _has_closure(args, kwargs)
                if (
                    not quick.on
                    or closure
                    or quick.optimizer() is not optimizer
                    or perf_counter() >= watcher.norms_due
                ):
                    watcher.before_step(optimizer, closure)
            except Exception as error:
                self._failed(error)

        return before_step

    def _after_step(self) -> Callable[..., None]:
        quick, losses, noted = self._quick, self._quick.losses, self._quick.noted

        def after_step(
            optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> None:
            if (
                quick.on
                and quick.optimizer() is optimizer
                and not kwargs
                and (now := perf_counter()) < quick.due
            ):
                if len(args) == 1:
                    noted.append(
                        (now, len(losses), optimizer.param_groups[0].get("lr"))
                    )
                    if len(noted) == 1:
                        quick.spent = perf_counter() - now
                    return
            watcher = self._watcher
            if watcher is None:
                return
            if self._unscaled:
                self._unscaled.clear()
            try:
                watcher.after_step(optimizer, _has_closure(args, kwargs))
            except Exception as error:
                self._failed(error)
            except BaseException as error:  # Ctrl+C while the script is paused
                error.__traceback__ = None
                raise

        return after_step

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        depth, quick, losses = self._depth, self._quick, self._quick.losses
        in_backward, modes = (
            torch._C._current_graph_task_id,
            torch._C._len_torch_function_stack,
        )

        def backward(
            tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any
        ) -> Any:
            if (
                quick.on
                and grad_tensors is None
                and type(tensors) is Tensor
                and in_backward() == -1
                and not modes()
            ):
                try:
                    if quick.pending and (watcher := self._watcher) is not None:
                        watcher.backward_again()
                    if tensors.is_cpu and tensors.numel() == 1:
                        losses.append(tensors.item())
                    else:
                        self._called(tensors, grad_tensors)
                except Exception as error:
                    self._failed(error)
                try:
                    return original(tensors, grad_tensors, *args, **kwargs)
                except BaseException as error:
                    if error.__traceback__ is not None:
                        error.__traceback__ = error.__traceback__.tb_next
                    raise
            watcher = self._watcher
            outermost = watcher is not None and not getattr(depth, "now", False)
            if watcher is not None and outermost:
                depth.now = True
                self._called(tensors, grad_tensors)
            try:
                if (
                    watcher is not None
                    and outermost
                    and watcher.actions
                    and watcher.actions.capturing.armed
                ):
                    self._stand(tensors, grad_tensors, kwargs.get("inputs"))
                return original(tensors, grad_tensors, *args, **kwargs)
            except BaseException as error:
                if error.__traceback__ is not None:
                    error.__traceback__ = error.__traceback__.tb_next
                raise
            finally:
                if outermost:
                    depth.now = False

        return backward

    def _called(self, tensors: Any, grad_tensors: Any) -> None:
        watcher = self._watcher
        if watcher is None or torch.compiler.is_compiling():
            return
        try:
            watcher.backward_again()
            for loss in (tensors,) if isinstance(tensors, Tensor) else tensors:
                if (
                    isinstance(loss, Tensor)
                    and loss.numel() == 1
                    and (grad_tensors is None or loss.dim() == 0)
                ):
                    scaled = self._unscaled.get(id(loss))
                    watcher.backward_called(
                        loss if scaled is None or scaled[0]() is not loss else scaled[1]
                    )
        except Exception as error:
            self._failed(error)

    def _zero_grad(self, original: Callable[..., Any]) -> Callable[..., Any]:
        quick, in_backward = self._quick, torch._C._current_graph_task_id

        def zero_grad(owner: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(owner, *args, **kwargs)
            watcher = self._watcher
            if watcher is not None and quick.pending and in_backward() == -1:
                try:
                    watcher.gradients_cleared(owner)
                except Exception as error:
                    self._failed(error)
            return result

        return _without_frame(zero_grad)

    def _stand(self, tensors: Any, grad_tensors: Any, inputs: Any) -> None:
        """Pause if this backward is to be captured."""
        watcher = self._watcher
        if watcher is None:
            return
        try:
            scaled = self._unscaled.get(id(tensors))
            scaled_loss = scaled[0]() if scaled is not None else None
            scale = (
                float(scaled_loss.detach() / scaled[1])
                if scaled is not None and scaled_loss is not None
                else 1.0
            )
            watcher.stand_if_asked(
                tensors, grad_tensors, scale if math.isfinite(scale) else 1.0, inputs
            )
        except Exception as error:
            self._failed(error)
        except BaseException as error:  # Ctrl+C while the script is paused
            error.__traceback__ = None
            raise

    def _scale(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def scale(scaler: Any, outputs: Any) -> Any:
            scaled = original(scaler, outputs)
            if (
                isinstance(outputs, Tensor)
                and isinstance(scaled, Tensor)
                and outputs.numel() == 1
            ):
                self._unscaled[id(scaled)] = (weakref.ref(scaled), outputs.detach())
                self._quick.on = False  # until the next turn
            return scaled

        return _without_frame(scale)

    def _compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def compiled(*args: Any, **kwargs: Any) -> Any:
            watcher = self._watcher
            if (
                watcher is not None
                and watcher.actions is not None
                and not kwargs.get("disable")
            ):
                watcher.actions.capturing.compiles()
            return original(*args, **kwargs)

        return _without_frame(compiled)

    def _scaler_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            watcher = self._watcher
            before = watcher.stepped(optimizer) if watcher is not None else 0
            result = original(scaler, optimizer, *args, **kwargs)
            if (
                watcher is not None
                and watcher is self._watcher
                and watcher.stepped(optimizer) == before
            ):
                try:
                    watcher.skipped()
                except Exception as error:
                    self._failed(error)
            return result

        return _without_frame(step)


class ScriptCompilerLog(CompilerLog):
    """Tells who watches of graph breaks and recompiles, each once."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__()
        self._watcher = watcher
        self._met: set[tuple[str, ...]] = set()

    def handleError(self, record: object) -> None:
        """Say nothing in the script's terminal of a record that another torch writes otherwise."""

    def _tell(self, frame: GraphBreak | Recompiled) -> None:
        met = tuple(map(str, frame[1:]))
        if len(self._met) < MOST_COMPILED and met not in self._met:
            self._met.add(met)
            self._watcher.file.tell(frame)

    def broke(self, text: BreakText) -> None:
        file, line = text.frames[-1]
        cut = [
            value[:MOST_TEXT]
            for value in (
                called_path(),
                f"{file}:{line}",
                text.kind,
                text.explanation,
                "\n".join(text.hints),
            )
        ]
        self._tell(GraphBreak(self._watcher.step, *cut))

    def recompiled(self, reasons: list[str]) -> None:
        for reason in reasons[:1]:
            self._tell(
                Recompiled(
                    self._watcher.step, called_path()[:MOST_TEXT], reason[:MOST_TEXT]
                )
            )


def _at_callers_line(original: Callable[..., Any]) -> Callable[..., Any]:
    """Show a warning that torch gives at the line of its caller, which is one here, at that caller's own."""

    def showwarning(
        message: Any, category: Any, filename: str, lineno: int, *rest: Any, **more: Any
    ) -> None:
        frame = sys._getframe(1) if filename == __file__ else None
        while frame is not None and frame.f_code.co_filename != __file__:
            frame = frame.f_back
        while frame is not None and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        if frame is not None:
            filename, lineno = frame.f_code.co_filename, frame.f_lineno
        original(message, category, filename, lineno, *rest, **more)

    return showwarning


def _has_closure(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return len(args) > 1 and callable(args[1]) or callable(kwargs.get("closure"))


def _without_frame(function: Callable[..., Any]) -> Callable[..., Any]:
    """Leave two frames out of the traceback of an error: that of `function` and this one."""

    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            trace = error.__traceback__
            error.__traceback__ = (
                trace.tb_next.tb_next
                if trace is not None and trace.tb_next is not None
                else None
            )
            raise

    return called


def _uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Have torch.compile leave a function alone, without loading the compiler."""
    target: Any = function
    target._torchdynamo_disable = True
    return function
