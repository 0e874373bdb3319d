"""Run a model in another interpreter, forward and backward: on its own inputs, and on the tensors of A.

It imports the standard library, torch, and modules of the program that import no more. `main(FOLDER)` reads `given.pt`
there, and writes `found.pt`. Every call of a module is identified by its path and number; its tensors are numbered in
the order of the arguments. In the second pass each call gets what A's call got, with the same state of the generator,
and hands on what A's call returned; between two calls the graph is cut, and each piece gets the gradients that A had at
its ends.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import platform
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from app.features.compare.compute.borders import (
    LARGEST_BUFFER,
    as_input,
    direction,
    is_listening,
)
from app.features.compare.compute.containers import in_order, replace_tensors
from app.source.own_imports import permit
from app.util import module_tree
from app.util.torchvision_import import mend_torchvision

GIVEN, FOUND = "given.pt", "found.pt"


def main(folder: str) -> None:
    """Execute the request in `given.pt` of a folder. Raises as making the model does."""
    request = torch.load(Path(folder, GIVEN), weights_only=True)
    for name in [
        name for name in sys.modules if name == "app" or name.startswith("app.")
    ]:
        del sys.modules[name]  # the package of the model may be called `app` too
    mend_torchvision()
    model = make_model(json.loads(request["make"]))
    model.load_state_dict(request["state"])
    answer: dict[str, Any] = {"about": about(), "own": None, "forced": None}
    answer["own"] = OwnPass(model).ran(request)
    if not answer["own"]["error"]:
        answer["forced"] = ForcedPass(model, request["calls"]).ran(request)
    torch.save(answer, Path(folder, FOUND))


def about() -> dict[str, str]:
    """Describe this interpreter and its torch."""
    return {
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "threads": str(torch.get_num_threads()),
        "interpreter": sys.executable,
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
        "matmul precision": torch.get_float32_matmul_precision(),
        "mkldnn": str(torch.backends.mkldnn.enabled),
        "CPU capability": torch.backends.cpu.get_cpu_capability(),
    }


def make_model(how: dict[str, Any]) -> nn.Module:
    """Make the model: of a module on one of the paths, or of torchvision or timm."""
    sys.path[:0] = how["paths"]
    if "texts" in how:
        permit(how["folders"], how["texts"], how["compiled"])
    arguments = how["arguments"]
    if how["kind"] == "torchvision":
        models: Any = importlib.import_module("torchvision.models")
        name, _, member = how["name"].partition(".")
        return models.get_model(name, **{"weights": None, **arguments}).get_submodule(
            member
        )
    if how["kind"] == "timm":
        return importlib.import_module("timm").create_model(
            how["name"], pretrained=False, **arguments
        )
    maker: Any = importlib.import_module(how["module"])
    for member in how["name"].split("."):
        maker = getattr(maker, member)
    model = maker if isinstance(maker, nn.Module) else maker(**arguments)
    return model[0] if isinstance(model, tuple) else model


class OwnPass:
    """Records the outputs of every call, with their gradients."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.stack: list[tuple[Any, ...]] = []  # path, number, module, tensors given
        self.calls: list[dict[str, Any]] = []
        self.events: list[tuple[str, int]] = []  # "enter" or "leave", and which call
        self._made = Counter[str]()

    def ran(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run forward and backward; errors of the model are returned."""
        state = {
            name: tensor.clone() for name, tensor in self.model.state_dict().items()
        }
        module_tree.set_mode(self.model, request["train"])
        self.model.zero_grad(set_to_none=True)
        torch.manual_seed(request["seed"])
        error = refused = ""
        try:
            with self._hooks(), torch.enable_grad():
                args, kwargs = replace_tensors(
                    (request["args"], request["kwargs"]), as_input
                )
                output = self.model(*args, **kwargs)
            try:
                self.backward(output)
            except (RuntimeError, NotImplementedError) as stopped:
                refused = f"{type(stopped).__name__}: {stopped}".split("\n")[0]
        except Exception as failed:  # the model's own
            error = f"{type(failed).__name__}: {failed}".split("\n")[0]
        gradients = {
            name: parameter.grad
            for name, parameter in module_tree.named_parameters(
                self.model, remove_duplicate=False
            )
        }
        self.model.load_state_dict(state)
        at = self.stack[-1][:2] if self.stack else ("", 1)
        return {
            "calls": self.calls,
            "events": self.events,
            "gradients": gradients,
            "refused": refused,
            "error": error,
            "at": at,
            **self.more(),
        }

    def more(self) -> dict[str, Any]:
        return {}

    def backward(self, output: Any) -> None:
        outputs: list[Tensor] = []

        def note(tensor: Tensor) -> Tensor:
            outputs.append(tensor)
            return tensor

        replace_tensors(output, note)
        outputs = [tensor for tensor in outputs if tensor.requires_grad]
        if outputs:
            torch.autograd.backward(
                outputs,
                [direction(tensor, number) for number, tensor in enumerate(outputs)],
            )

    @contextlib.contextmanager
    def _hooks(self) -> Iterator[None]:
        hooks: list[Any] = []
        for path, module in module_tree.named_modules(self.model):
            hooks.append(
                module_tree.before_call(module, self._before(path), with_kwargs=True)
            )
            hooks.append(module_tree.on_call(module, self._after, with_kwargs=True))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _before(self, path: str) -> Callable[..., Any]:
        def hook(
            module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> Any:
            if not is_listening():
                return None
            self._made[path] += 1
            call: dict[str, Any] = {
                "path": path,
                "number": self._made[path],
                "outputs": [],
                "arrived": [],
                "left": {},
            }
            call["caller"] = self.stack[-1][:2] if self.stack else None
            self.events.append(("enter", len(self.calls)))
            call["index"] = len(self.calls)
            self.calls.append(call)
            ordered = {name: kwargs[name] for name in in_order(module, args, kwargs)}
            spots: list[tuple[Tensor, Tensor, int]] = []
            arguments = self.entered(call, (args, ordered), spots)
            self.stack.append((path, self._made[path], module, call, spots))
            return arguments

        return hook

    def _after(self, module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> Any:
        if not is_listening() or not any(entry[2] is module for entry in self.stack):
            return None
        while self.stack[-1][2] is not module:
            self.stack.pop()
        *_, call, spots = self.stack.pop()
        self.events.append(("leave", call["index"]))
        output = self.left(call, module, spots, output)
        return output

    def entered(
        self,
        _call: dict[str, Any],
        arguments: Any,
        _spots: list[tuple[Tensor, Tensor, int]],
    ) -> Any:
        return arguments

    def left(
        self, call: dict[str, Any], _module: nn.Module, _spots: Any, output: Any
    ) -> Any:
        def keep_output(tensor: Tensor) -> Tensor:
            spot = [tensor.detach().clone(), None]
            call["outputs"].append(spot)
            if not tensor.requires_grad:
                return tensor
            fresh = tensor.clone()
            fresh.register_hook(
                lambda gradient: spot.__setitem__(1, gradient.detach().clone())
            )
            return fresh

        return replace_tensors(output, keep_output)


class ForcedPass(OwnPass):
    """A forward and backward pass whose calls get the inputs of A's calls; their outputs are recorded."""

    def __init__(self, model: nn.Module, reference: list[dict[str, Any]]) -> None:
        super().__init__(model)
        self._reference = {
            (record["path"], record["number"]): record for record in reference
        }
        self._ends: list[tuple[Tensor, Tensor]] = []
        self._leaves: list[tuple[str, int, str, int, Tensor]] = []

    def more(self) -> dict[str, Any]:
        return {"leaves": [(*spot, leaf.grad) for *spot, leaf in self._leaves]}

    def entered(
        self,
        call: dict[str, Any],
        arguments: Any,
        spots: list[tuple[Tensor, Tensor, int]],
    ) -> Any:
        reference = self._reference.get((call["path"], call["number"]))
        replacements: dict[int, Tensor] = {}

        def enter(tensor: Tensor) -> Tensor:
            if id(tensor) not in replacements:
                number = len(call["arrived"])
                call["arrived"].append(tensor.detach().clone())
                has = reference is not None and number < len(reference["inputs"])
                fresh = (
                    self._cut(call, "in", number, tensor, reference["inputs"][number])
                    if reference and has
                    else tensor
                )
                spots.append((tensor, fresh, fresh._version))
                replacements[id(tensor)] = fresh
            return replacements[id(tensor)]

        arguments = replace_tensors(arguments, enter)
        if reference is not None and reference["before"] is not None:
            torch.set_rng_state(reference["before"])
        return arguments

    def left(
        self,
        call: dict[str, Any],
        module: nn.Module,
        spots: list[tuple[Tensor, Tensor, int]],
        output: Any,
    ) -> Any:
        reference = self._reference.get((call["path"], call["number"]))
        for number, (tensor, fresh, version) in enumerate(spots):
            if reference is None or (
                fresh._version == version and number not in reference["written"]
            ):
                continue
            call["left"][number] = fresh.detach().clone()
            spot = reference["written"].get(number) or reference["inputs"][number]
            with contextlib.suppress(RuntimeError):
                tensor.copy_(self._cut(call, "left", number, fresh, spot))

        def keep_output(tensor: Tensor) -> Tensor:
            number = len(call["outputs"])
            call["outputs"].append([tensor.detach().clone(), None])
            if reference is None or number >= len(reference["outputs"]):
                return tensor
            return self._cut(call, "out", number, tensor, reference["outputs"][number])

        output = replace_tensors(output, keep_output)
        return (
            output
            if reference is None
            else self._with_state(call, module, reference, output)
        )

    def _with_state(
        self,
        call: dict[str, Any],
        module: nn.Module,
        reference: dict[str, Any],
        output: Any,
    ) -> Any:
        call["made_buffers"] = _buffers(module)
        for name, buffer in module._buffers.items():
            expected = reference["buffers"].get(name)
            if (
                buffer is not None
                and expected is not None
                and expected.shape == buffer.shape
            ):
                buffer.data.copy_(expected)
        if reference["after"] is not None:
            torch.set_rng_state(reference["after"])
        return output

    def _cut(
        self,
        call: dict[str, Any],
        kind: str,
        number: int,
        tensor: Tensor,
        spot: list[Any],
    ) -> Tensor:
        """Cut the graph at a tensor, and return A's tensor, from which the next piece of the graph starts."""
        value, needs_gradient, gradient = spot
        if value.is_floating_point() and tensor.is_floating_point():
            value = value.to(tensor.dtype)
        if (
            tensor.requires_grad
            and gradient is not None
            and gradient.shape == tensor.shape
        ):
            self._ends.append((tensor.clone(), gradient.to(tensor.dtype)))
        leaf = value.clone()
        if (leaf.is_floating_point() or leaf.is_complex()) and (
            tensor.requires_grad or needs_gradient
        ):
            leaf.requires_grad_()
            self._leaves.append((call["path"], call["number"], kind, number, leaf))
            return leaf.clone()
        return leaf

    def backward(self, _output: Any) -> None:
        if self._ends:
            torch.autograd.backward(
                [tensor for tensor, _ in self._ends],
                [gradient for _, gradient in self._ends],
            )


def _buffers(module: nn.Module) -> dict[str, Tensor]:
    small = (
        (name, buffer)
        for name, buffer in module._buffers.items()
        if buffer is not None and buffer.numel() <= LARGEST_BUFFER
    )
    return {name: buffer.detach().clone() for name, buffer in small}
