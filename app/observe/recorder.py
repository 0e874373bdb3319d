"""Run a model once and record its calls: modules, public torch functions, and kernels that neither names.

Three hooks see a forward pass. `nn.Module.__call__` is replaced in this thread's pass, so that modules created during
the call are recorded too; a function mode sees torch's public functions, methods and operators once each, however many
kernels they run; a dispatch mode sees the kernels, also those that compiled code calls past the public functions. None
of them changes a value. A tensor is followed by identity, by the memory that it shares with the tensor that was written
to, and where a new object came from C++, by its autograd node.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType
from typing import Any
from weakref import ref

import torch
from msgspec import Struct
from torch import Tensor, nn
from torch._C import DisableTorchFunction
from torch.overrides import resolve_name

from app.observe import tensors
from app.observe.observation import Call, Flow, Kind, TensorFacts
from app.util import module_tree, user_frames
from app.util.torch_calls import FunctionCalls, KernelCalls

INDEXED = frozenset({"__getitem__", "__setitem__"})
# Take a Python value out of a tensor: what follows may depend on it.
READS = frozenset(
    (
        "item",
        "tolist",
        "numpy",
        "__bool__",
        "__int__",
        "__float__",
        "__index__",
        "__complex__",
        "is_nonzero",
        "equal",
        "allclose",
    )
)
# Getters of facts, of which a forward pass has several for each operation. They make no tensor and run no kernel.
FACTS = frozenset(
    f"torch.Tensor.{name}"
    for name in (
        *(
            f"{name}.__get__"
            for name in (
                "shape",
                "dtype",
                "device",
                "layout",
                "ndim",
                "requires_grad",
                "is_leaf",
                "is_cuda",
                "is_cpu",
                "is_meta",
                "is_mps",
                "is_xpu",
                "is_sparse",
                "is_sparse_csr",
                "is_quantized",
                "is_nested",
                "is_mkldnn",
                "itemsize",
                "nbytes",
                "names",
                "_version",
                "grad_fn",
            )
        ),
        "size",
        "stride",
        "dim",
        "ndimension",
        "numel",
        "nelement",
        "element_size",
        "storage_offset",
        "is_contiguous",
        "is_floating_point",
        "is_complex",
        "is_signed",
        "is_inference",
        "is_conj",
        "is_neg",
        "get_device",
        "__len__",
    )
)
LONGEST = 60  # letters of a value that was read
_ONE_AT_A_TIME = threading.RLock()  # `nn.Module.__call__` is one for all threads


class Draft(Struct):
    """A call that has begun."""

    id: int
    kind: Kind
    path: str
    op: str
    parent: int | None
    call: int = 0
    inputs: tuple[TensorFacts, ...] = ()
    outputs: tuple[TensorFacts, ...] = ()
    settings: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    value: str = ""
    place: tuple[str, int] = ("", 0)
    written: bool = False
    view: bool = False
    kernels: list[str] = []
    error: str = ""

    def done(self) -> Call:
        return Call(
            self.id,
            self.kind,
            self.path,
            self.op,
            self.parent,
            self.call,
            self.inputs,
            self.outputs,
            self.settings,
            self.parameters,
            self.value,
            *self.place,
            self.written,
            self.view,
            tuple(self.kernels),
            self.error,
        )


class Recorder:
    """Records the calls of a forward pass of `model` within `observing()`, on the thread that enters it."""

    def __init__(self, model: nn.Module) -> None:
        self.drafts: list[Draft] = []
        self.flows: list[Flow] = []
        self.errors: list[
            tuple[BaseException, int]
        ] = []  # each exception, at the innermost call that it left
        self._open: list[Draft] = []
        self._paths = {
            id(module): path for path, module in module_tree.named_modules(model)
        }
        self._made = Counter[str]()
        self._thread = threading.get_ident()
        # Where a tensor comes from, by its id: the call and the number of its result.
        self._sources: dict[int, tuple[ref[Tensor], tuple[int, int]]] = {}
        self._written: dict[
            int, tuple[int, int]
        ] = {}  # by storage: the last call that wrote to it
        self._by_grad_fn: Any = {}  # autograd nodes are kept alive, so that their ids stay theirs
        # Parameters and buffers are kept alive, so that their ids stay theirs.
        self._held = [
            *module_tree.named_parameters(model),
            *module_tree.named_buffers(model),
        ]
        self._function_names: dict[Any, str] = {}
        self._names = {id(tensor): name for name, tensor in self._held}

    # -- what runs the pass

    @contextlib.contextmanager
    def observing(self, kernels: bool = True, functions: bool = True) -> Iterator[None]:
        """Observe the calls of this thread. `kernels` and `functions` select torch's dispatch and function modes."""
        with _ONE_AT_A_TIME, contextlib.ExitStack() as stack:
            stack.enter_context(self._modules())
            if kernels:
                stack.enter_context(KernelCalls(self._kernel_called))
            if functions:
                stack.enter_context(FunctionCalls(self._function_called))
            yield

    @contextlib.contextmanager
    def _modules(self) -> Iterator[None]:
        original = nn.Module.__call__
        recorder = self

        def observed(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if not recorder.listening:
                return original(module, *args, **kwargs)
            return recorder.module(module, original, args, kwargs)

        nn.Module.__call__ = observed  # type: ignore[method-assign]
        try:
            yield
        finally:
            nn.Module.__call__ = original  # type: ignore[method-assign]

    @property
    def listening(self) -> bool:
        """False in other threads, and while a backward pass runs."""
        return (
            threading.get_ident() == self._thread
            and torch._C._current_graph_task_id() == -1
        )

    @property
    def open(self) -> Draft | None:
        """The innermost call that runs."""
        return self._open[-1] if self._open else None

    # -- calls

    def module(
        self,
        module: nn.Module,
        call: Callable[..., Any],
        args: Any,
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Call a module, and write it down with the tensors that it took and gave."""
        kind = type(module)
        path = self._path_of(module)
        self._made[path] += 1
        draft = self._begin(
            "module", path, f"{kind.__module__}.{kind.__qualname__}", sys._getframe(2)
        )
        draft.call = self._made[path]
        with DisableTorchFunction():  # operations here are none of the model's calls
            draft.inputs = tuple(map(tensors.facts, tensors.tensors_in((args, kwargs))))
            with contextlib.suppress(
                Exception
            ):  # an extra_repr of the model's own may raise anything
                draft.settings = (module.extra_repr(),)
        try:
            with self._running(draft):
                result = call(module, *args, **kwargs)
        except BaseException:
            self._take_unused(draft, (args, kwargs))
            raise
        with DisableTorchFunction():
            draft.outputs = tuple(map(tensors.facts, tensors.tensors_in(result)))
        return result

    def _function_called(
        self, func: Any, args: Any, kwargs: Mapping[str, Any], frame: FrameType
    ) -> Any:
        if not self.listening:
            return func(*args, **kwargs)
        name = self._function_name(func)
        if name in FACTS:
            # one that raises is a call, which raises again
            with contextlib.suppress(Exception):
                return func(*args, **kwargs)
        return self.function(name, func, args, kwargs, frame)

    def _function_name(self, func: Any) -> str:
        try:
            name = self._function_names.get(func)
        except TypeError:  # unhashable
            return _name_of(func)
        if name is None:
            name = self._function_names[func] = _name_of(func)
        return name

    def function(
        self,
        name: str,
        call: Callable[..., Any],
        args: Any,
        kwargs: Mapping[str, Any],
        frame: FrameType,
        kernels: tuple[str, ...] = (),
    ) -> Any:
        """Call a public function of torch, and record it if it returns tensors, or a value that was read."""
        last = name.rpartition(".")[2]
        input_tensors = tensors.tensors_in((args, kwargs))
        before = [tensors.version_of(tensor) for tensor in input_tensors]
        draft = self._begin("operation", self._path(), _dotted(name), frame)
        draft.kernels.extend(kernels)
        if last != "__get__":  # of which there are many, and few make a tensor
            draft.inputs = tuple(map(tensors.facts, input_tensors))
        flows = dict.fromkeys(self._source_of(tensor) for tensor in input_tensors)
        try:
            with self._running(draft):
                result = call(*args, **kwargs)
        except BaseException:
            self._take(draft, flows)
            raise
        output_tensors = tensors.tensors_in(result)
        changed = [
            t
            for t, version in zip(input_tensors, before, strict=True)
            if tensors.version_of(t) != version
        ]
        if not output_tensors and not changed:
            if last in READS and input_tensors:
                draft.kind, draft.value = "read", _short(result)
            else:
                self._forget(draft)
                return result
        draft.inputs = draft.inputs or tuple(map(tensors.facts, input_tensors))
        if last in INDEXED and len(args) > 1:
            draft.settings = (
                tensors.index_text(args[1]),
                *tensors.settings_of(args[2:], kwargs),
            )
        else:
            draft.settings = tensors.settings_of(args, kwargs)
        self._take(draft, flows)
        self._end(draft, input_tensors, output_tensors, changed)
        return result

    def _kernel_called(
        self, call: Any, args: Any, kwargs: Mapping[str, Any], frame: FrameType
    ) -> Any:
        """Run a kernel: part of the current function, or, without one, a separate operation."""
        if not self.listening:
            return call(*args, **kwargs)
        name, running = str(call), self.open
        if running is not None and running.kind != "module":
            running.kernels.append(name)
            return call(*args, **kwargs)

        def run(*positional: Any, **named: Any) -> Any:
            with (
                DisableTorchFunction()
            ):  # else the call of the kernel is seen as that of a function, too
                return call(*positional, **named)

        return self.function(name, run, args, kwargs, frame, (name,))

    def boundary(self, kind: Kind, name: str, contents: list[Tensor]) -> None:
        """Write down an input or an output of the model, with the tensors that it holds."""
        draft = Draft(len(self.drafts), kind, name, kind, None)
        self.drafts.append(draft)
        described = tuple(map(tensors.facts, contents))
        if kind == "input":
            draft.outputs = described
            for number, tensor in enumerate(contents):
                self._set_source(tensor, draft.id, number)
                self._note_storage(tensor, draft.id, number)
        else:
            draft.inputs = described
            self._take(draft, dict.fromkeys(map(self._source_of, contents)))

    # -- steps of them

    def _begin(self, kind: Kind, path: str, op: str, frame: FrameType | None) -> Draft:
        parent = self._open[-1].id if self._open else None
        draft = Draft(
            len(self.drafts), kind, path, op, parent, place=user_frames.location(frame)
        )
        self.drafts.append(draft)
        return draft

    @contextlib.contextmanager
    def _running(self, draft: Draft) -> Iterator[None]:
        self._open.append(draft)
        try:
            yield
        except BaseException as error:
            draft.error = f"{type(error).__name__}: {error}"
            self.errors.append((error, draft.id))
            raise
        finally:
            self._open.pop()

    def _forget(self, draft: Draft) -> None:
        """Drop a call that made nothing; one that ran other calls is kept."""
        if self.drafts[-1] is draft:
            self.drafts.pop()

    def _take(self, draft: Draft, flows: Iterable[tuple[int, int] | None]) -> None:
        for flow in flows:
            self._flow(flow, draft.id)

    def _take_unused(self, draft: Draft, arguments: object) -> None:
        """Have a module that raised take what it was given, where no call within it did so before it raised."""
        with DisableTorchFunction():
            sources = dict.fromkeys(map(self._source_of, tensors.tensors_in(arguments)))
        used = {flow.source for flow in self.flows if flow.target >= draft.id}
        self._take(
            draft,
            (
                source
                for source in sources
                if source is not None and source[0] not in used
            ),
        )

    def _end(
        self,
        draft: Draft,
        input_tensors: list[Tensor],
        output_tensors: list[Tensor],
        changed: list[Tensor],
    ) -> None:
        names = self._names
        draft.parameters = tuple(
            dict.fromkeys(
                names[id(tensor)] for tensor in input_tensors if id(tensor) in names
            )
        )
        draft.outputs = tuple(map(tensors.facts, output_tensors))
        storages = {tensors.storage_of(tensor) for tensor in input_tensors} - {None}
        for number, tensor in enumerate(output_tensors):
            self._set_source(tensor, draft.id, number)
            if tensor.grad_fn is not None:
                self._by_grad_fn.setdefault(
                    id(tensor.grad_fn), (tensor.grad_fn, draft.id, number)
                )
            if tensors.storage_of(tensor) not in storages:
                self._note_storage(tensor, draft.id, number)
            elif not any(tensor is input_tensor for input_tensor in input_tensors):
                draft.view = True
        for tensor in changed:
            if (
                id(tensor) in names
                and not tensor.requires_grad
                and not any(tensor is output_tensor for output_tensor in output_tensors)
            ):
                continue  # running statistics
            draft.written = True
            self._set_source(tensor, draft.id, 0)
            self._note_storage(tensor, draft.id, 0)

    def _set_source(self, tensor: Tensor, call: int, number: int) -> None:
        self._sources[id(tensor)] = ref(tensor), (call, number)

    def _note_storage(self, tensor: Tensor, call: int, number: int) -> None:
        storage = tensors.storage_of(tensor)
        if storage is not None:
            self._written[storage] = (call, number)

    def _source_of(self, tensor: Tensor) -> tuple[int, int] | None:
        """Return the call that a tensor comes from, and the number of its result; None for one from outside."""
        known_source = self._sources.get(id(tensor))
        source = (
            known_source[1]
            if known_source is not None and known_source[0]() is tensor
            else None
        )
        if source is None and tensor.grad_fn is not None:
            entry = self._by_grad_fn.get(id(tensor.grad_fn))
            source = entry[1:] if entry is not None else None
        if source is None and id(tensor) in self._names:
            return None
        storage = tensors.storage_of(tensor)
        written = self._written.get(storage) if storage is not None else None
        return (
            written
            if written is not None and (source is None or written[0] > source[0])
            else source
        )

    def _flow(self, source: tuple[int, int] | None, target: int) -> None:
        if source is not None and source[0] != target:
            self.flows.append(Flow(source[0], target, source[1]))

    def _path(self) -> str:
        return next(
            (draft.path for draft in reversed(self._open) if draft.kind == "module"), ""
        )

    def _path_of(self, module: nn.Module) -> str:
        path = self._paths.get(id(module))
        if path is None:  # created during the call, as in nn.GELU()(x)
            path = f"{self._path()}.{type(module).__name__}()".removeprefix(".")
        return path

    def release(self) -> None:
        """Free the graph and the exceptions of the pass, which keep its activations alive."""
        for error, _ in self.errors:
            error.__traceback__ = None
        self.errors.clear()
        self._by_grad_fn.clear()
        self._sources.clear()

    def calls(self) -> tuple[Call, ...]:
        """Return the recorded calls; ids are positions in them, also of calls after one that was dropped."""
        return tuple(draft.done() for draft in self.drafts)


def _name_of(func: Any) -> str:
    """Return the dotted name of a public function, such as torch.nn.functional.relu."""
    with contextlib.suppress(
        Exception
    ):  # what names an unknown callable may raise anything
        if (name := resolve_name(func)) is not None:
            return name
    module = getattr(func, "__module__", None) or "torch"
    return f"{module}.{getattr(func, '__qualname__', None) or getattr(func, '__name__', type(func).__name__)}"


def _dotted(name: str) -> str:
    """Return a name without the getter of a property: torch.Tensor.T of torch.Tensor.T.__get__."""
    return name.removesuffix(".__get__")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
