"""A second device for tests on a machine without a GPU: `sim:0`, with memory of its own, written in Python.

Where this folder is on PYTHONPATH, `import torch` registers it as the backends of makers register theirs, by the entry
point of the group `torch.backends` in the folder beside. A tensor on `sim` holds a CPU tensor that nothing else
reaches; each operation runs on the CPU, so results are the CPU's bit for bit. What differs is what differs on a GPU:

- a tensor that was left on the CPU fails ("Expected all tensors to be on the same device"), and so does a generator;
- `tensor.numpy()` does not work; `.item()`, `.cpu()` and `.tolist()` copy;
- `torch.accelerator` counts bytes, each storage once, and what it keeps until `empty_cache`;
- memory ends: `SIM_MEMORY=bytes`, or `torch.sim.set_memory_limit`. OutOfMemoryError then, and the tensors that were
  there stay;
- errors come late: those of `torch.sim.fail_later` at the next read or `synchronize`;
- `SIM_FLOAT64=0` makes it one without double precision, to which no copy from or to it can convert either, as on MPS;
- `SIM_RANDOM=own` gives it random numbers of its own.

Without that its random numbers are drawn from the CPU's generator, and are those of the CPU. Autocast casts what it
casts there.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import types
from contextlib import nullcontext
from functools import partial, wraps
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

NAME = "sim"
NO_FLOAT64 = "Cannot convert a sim Tensor to float64 dtype, as the device does not support float64."
LOST = "Expected all tensors to be on the same device, but found at least two devices, sim:0 and cpu! (in {})"
GENERATOR = "Expected a 'sim' device type for generator but found 'cpu'"


class _Memory:
    """Bytes: each storage counts once, however many tensors view it."""

    def __init__(self) -> None:
        self.allocated = self.peak = self.reserved = 0
        self.chosen: int | None = None
        self.lock = threading.RLock()  # a backward pass has a thread of its own
        self.owners: dict[int, int] = {}  # address of a storage: tensors that view it

    @property
    def limit(self) -> int:
        return self.chosen or int(os.environ.get("SIM_MEMORY", 2**36))

    def take(self, key: int, size: int) -> None:
        with self.lock:
            self._take(key, size)

    def _take(self, key: int, size: int) -> None:
        if key not in self.owners:
            if self.allocated + size > self.limit:
                raise torch.OutOfMemoryError(
                    f"sim out of memory. Tried to allocate {size / 2**20:.2f} MiB. The device has a total capacity of "
                    f"{self.limit / 2**20:.2f} MiB, of which {self.allocated / 2**20:.2f} MiB are allocated. "
                    "If other tensors are not needed, delete them."
                )
            self.allocated += size
            self.peak = max(self.peak, self.allocated)
            self.reserved = max(self.reserved, self.allocated)
        self.owners[key] = self.owners.get(key, 0) + 1

    def release(self, key: int, size: int) -> None:
        with self.lock:
            self.owners[key] -= 1
            if not self.owners[key]:
                del self.owners[key]
                self.allocated -= size

    def stats(self) -> dict[str, Any]:
        return {
            "allocated_bytes": {
                "all": {"current": self.allocated, "peak": self.peak},
            },
            "reserved_bytes": {
                "all": {"current": self.reserved, "peak": self.reserved},
            },
        }


class _Random:
    """The generator: that of the CPU, or with `SIM_RANDOM=own` a state that takes its place while `sim` draws."""

    def __init__(self) -> None:
        self.own = os.environ.get("SIM_RANDOM") == "own"
        self.state = torch.Generator().manual_seed(1).get_state()

    def seed(self, number: int) -> None:
        self.state = torch.Generator().manual_seed(number).get_state()

    def get(self, _device: Any = None) -> torch.Tensor:
        return self.state.clone() if self.own else torch.get_rng_state()

    def set(self, state: torch.Tensor, _device: Any = None) -> None:
        """Where the state is the CPU's, who restores it restores that too."""
        self.state = state.clone()

    def drawn(self, op: Any, args: Any, kwargs: Any) -> Any:
        """Call an operation with the generator of the device."""
        if not self.own or torch.Tag.nondeterministic_seeded not in op.tags:
            return op(*args, **kwargs)
        host = torch.get_rng_state()
        torch.set_rng_state(self.state)
        try:
            return op(*args, **kwargs)
        finally:
            self.state = torch.get_rng_state()
            torch.set_rng_state(host)


_random = _Random()
_memory = _Memory()
_late: list[str] = []  # messages of errors that come at the next read


class _Lease:
    """The storage of a tensor: no weak reference to the tensor itself, which `Module.to` could not swap then."""

    def __init__(self, raw: torch.Tensor) -> None:
        storage = raw.untyped_storage()
        taken = storage._cdata, storage.nbytes()
        _memory.take(*taken)
        self._of = taken

    def __del__(self) -> None:
        if hasattr(self, "_of"):
            _memory.release(*self._of)


class SimTensor(torch.Tensor):
    """A tensor on `sim:0`; `raw` is its memory."""

    raw: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, raw: torch.Tensor, requires_grad: bool = False) -> SimTensor:
        _refuse_double(raw.dtype)
        lease = _Lease(raw)
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            raw.size(),
            strides=raw.stride(),
            storage_offset=raw.storage_offset(),
            dtype=raw.dtype,
            layout=raw.layout,
            device=f"{NAME}:0",
            requires_grad=requires_grad,
        )
        made.raw, made.lease = raw, lease
        return made

    @classmethod
    def __torch_dispatch__(
        cls, op: Any, kinds: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        return _run(op, *args, **(kwargs or {}))

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        """So that `Module.to` keeps the parameters that there are, as it does for other devices."""
        return ["raw"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict, *_: Any) -> SimTensor:
        return SimTensor(inner["raw"])

    def __deepcopy__(self, memo: dict[int, Any]) -> SimTensor:
        if id(self) not in memo:
            copied = SimTensor(self.raw.clone(), self.requires_grad)
            copied._is_param = getattr(self, "_is_param", False)
            memo[id(self)] = copied
        return memo[id(self)]

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.raw.untyped_storage()

    def data_ptr(self) -> int:
        return self.raw.data_ptr()

    def tolist(self) -> Any:
        _raise_late()
        return self.raw.tolist()

    def __repr__(self, **_: Any) -> str:
        return f"{torch.Tensor.__repr__(self.raw)[:-1]}, device='{NAME}:0')"


_DOUBLE = (torch.float64, torch.complex128)
_COPIES = {
    "aten::copy_",
    "aten::_to_copy",
    "aten::_copy_from",
    "aten::_copy_from_and_resize",
}
# Of these the indices may be on the CPU, as on other devices.
_INDEXED = {"aten::index", "aten::index_put", "aten::index_put_"}
_READS = {"aten::_local_scalar_dense", "aten::_to_copy", "aten::copy_"}


class _Raised:
    """The exception that a backward pass of torch's engine ends with.

    A guard of a backend in Python is asked for its type while an exception passes it, which Python forbids and C++ ends
    the process for. So the guard takes the exception away, and who began the pass raises it again.
    """

    def __init__(self) -> None:
        self.exception: BaseException | None = None
        self._fetch = ctypes.pythonapi.PyErr_Fetch
        self._normal = ctypes.pythonapi.PyErr_NormalizeException
        self._parts = [ctypes.c_void_p() for _ in range(3)]
        self._places = [ctypes.byref(part) for part in self._parts]

    def take(self) -> None:
        self._fetch(*self._places)
        if self._parts[0].value:
            self._normal(*self._places)
            self.exception = ctypes.cast(self._parts[1], ctypes.py_object).value

    def run(self, engine: Any, *args: Any, **kwargs: Any) -> Any:
        """Begin a backward pass."""
        try:
            return engine(*args, **kwargs)
        except SystemError:
            exception, self.exception = self.exception, None
            if exception is None:
                raise
            raise exception from None


_raised = _Raised()


def _run(op: Any, *args: Any, **kwargs: Any) -> Any:
    name, device = op._schema.name, kwargs.get("device")
    leaves = tree_leaves((args, kwargs))
    ours = {id(x.raw): x for x in leaves if isinstance(x, SimTensor)}
    met = tree_leaves((args[0], args[2:])) if name in _INDEXED else leaves
    strangers = [x for x in met if type(x) is torch.Tensor and x.dim()]
    if strangers and ours and name not in _COPIES:
        raise RuntimeError(LOST.format(name))
    if kwargs.get("generator") is not None:
        raise RuntimeError(GENERATOR)
    to_host = device is not None and torch.device(device).type != NAME
    if name in _READS and (name != "aten::_to_copy" or to_host):
        _raise_late()
    if name in _COPIES:
        source, *target = reversed(args[:2]) if name == "aten::copy_" else args[:2]
        if isinstance(source, SimTensor):
            _refuse_double(target[0].dtype if target else kwargs.get("dtype"))
    if name == "aten::copy_":
        _raw(args[0]).copy_(_raw(args[1]))
        return args[0]
    if device is not None:
        kwargs = {**kwargs, "device": device if to_host else torch.device("cpu")}
        if "pin_memory" in kwargs:
            kwargs["pin_memory"] = None
    result = _random.drawn(op, tree_map(_raw, args), tree_map(_raw, kwargs))
    if to_host:
        return result

    def on_device(x: Any) -> Any:
        """What was written in place is the same tensor."""
        if not isinstance(x, torch.Tensor) or isinstance(x, SimTensor):
            return x
        return ours[id(x)] if id(x) in ours else SimTensor(x)

    return tree_map(on_device, result)


def _refuse_double(dtype: Any) -> None:
    if os.environ.get("SIM_FLOAT64") == "0" and dtype in _DOUBLE:
        raise TypeError(NO_FLOAT64)


def _raw(value: Any) -> Any:
    return value.raw if isinstance(value, SimTensor) else value


def _raise_late() -> None:
    if _late:
        raise torch.AcceleratorError(_late.pop(0))


class Properties(types.SimpleNamespace):
    """What `get_device_properties` returns of a card."""


def _synchronize(_device: Any = None) -> None:
    _raise_late()


def _forget_peak(_device: Any = None) -> None:
    _memory.peak = _memory.allocated


def _empty_cache() -> None:
    _memory.reserved = _memory.allocated


def _set_memory_limit(size: int | None) -> None:
    """Have the device hold at most `size` bytes from now on; None: as it was."""
    _memory.chosen = size


def _backend() -> types.ModuleType:
    module = types.ModuleType(f"torch.{NAME}")
    said = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_initialized": True,  # else a checkpoint keeps no random state of it
        "device": lambda _device: nullcontext(),
        "_is_in_bad_fork": lambda: False,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda _device: None,
        "synchronize": _synchronize,
        "manual_seed": _random.seed,
        "manual_seed_all": _random.seed,
        "get_rng_state": _random.get,
        "set_rng_state": _random.set,
        "get_amp_supported_dtype": lambda: [torch.bfloat16, torch.float16],
        "get_device_name": lambda _device=None: "Simulated accelerator",
        "get_device_properties": lambda _device=None: Properties(
            name="Simulated accelerator", total_memory=_memory.limit
        ),
        "set_memory_limit": _set_memory_limit,
        "fail_later": _late.append,
    }
    vars(module).update(said)
    return module


# What `torch.accelerator` asks of a backend's allocator in C++.
_ACCELERATOR = {
    "isAllocatorInitialized": lambda: True,
    "getDeviceStats": lambda _index: _memory.stats(),
    "resetPeakStats": _forget_peak,
    "emptyCache": _empty_cache,
    "getMemoryInfo": lambda _index: (
        _memory.limit - _memory.allocated,
        _memory.limit,
    ),
    "synchronizeDevice": _synchronize,
    "setDeviceIndex": lambda _index: None,
    "exchangeDevice": lambda _index: 0,
    "maybeExchangeDevice": lambda _index: 0,
}


# What autocast casts on the CPU, of what nets and losses call.
_LOWER = """
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d linear matmul mm bmm addmm baddbmm addbmm
    scaled_dot_product_attention
"""
_SINGLE = """
    mse_loss nll_loss nll_loss2d smooth_l1_loss cross_entropy_loss l1_loss huber_loss binary_cross_entropy
    binary_cross_entropy_with_logits kl_div poisson_nll_loss hinge_embedding_loss soft_margin_loss multi_margin_loss
    margin_ranking_loss triplet_margin_loss cosine_embedding_loss ctc_loss prod cdist trace
"""
_AUTOCAST = "AutocastPrivateUse1"


def _casting(name: str, lower: bool) -> Any:
    """Return the operator under autocast: its floating point tensors are cast first."""
    operator = getattr(torch.ops.aten, name)
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _AUTOCAST))

    def call(*args: Any, **kwargs: Any) -> Any:
        dtype = torch.get_autocast_dtype(NAME) if lower else torch.float32

        def cast(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or not value.is_floating_point():
                return value
            return value if value.dtype == torch.float64 else value.to(dtype)

        with torch._C._ExcludeDispatchKeyGuard(keys):
            return operator(*tree_map(cast, args), **tree_map(cast, kwargs))

    return call


def _from_data(make: Any) -> Any:
    """Return `torch.tensor`, or its like: torch makes none of numbers on a backend in Python."""

    @wraps(make)
    def made(data: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        if device is None or torch.device(device).type != NAME:
            return make(data, *args, device=device, **kwargs)
        requires_grad = kwargs.pop("requires_grad", False)
        if isinstance(data, torch.Tensor):
            kwargs = {"dtype": kwargs.get("dtype") or data.dtype}
            return data.to(device, **kwargs)
        return make(data, *args, **kwargs).to(device).requires_grad_(requires_grad)

    return made


def _guard() -> Any:
    class Guard(torch._C._acc.DeviceGuard):
        def type_(self) -> Any:
            _raised.take()
            return torch._C._autograd.DeviceType.PrivateUse1

    return Guard()


def register() -> None:
    """Register the device with this process's torch, once."""
    if hasattr(torch, NAME):
        return
    from torch import autograd
    from torch.utils.backend_registration import (
        _setup_privateuseone_for_python_backend,
    )

    engine = partial(_raised.run, autograd.graph._engine_run_backward)
    autograd._engine_run_backward = autograd.graph._engine_run_backward = engine
    module = _backend()
    sys.modules[f"torch.{NAME}"] = module
    _setup_privateuseone_for_python_backend(
        NAME, backend_module=module, device_guard=_guard()
    )
    for name, function in _ACCELERATOR.items():
        setattr(torch._C, f"_accelerator_{name}", function)
    library = torch.library.Library("_", "IMPL")
    library.fallback(_run, "PrivateUse1")
    library.fallback(torch.library.fallthrough_kernel, _AUTOCAST)
    casts = torch.library.Library("aten", "IMPL")
    for names, lower in ((_LOWER, True), (_SINGLE, False)):
        for name in names.split():
            casts.impl(name, _casting(name, lower), _AUTOCAST)
    torch.tensor, torch.as_tensor = map(_from_data, (torch.tensor, torch.as_tensor))
    module.libraries = library, casts  # for as long as the process
