"""Random batches for a network, independent of the project's data: inputs, and a loss with random targets.

torch is imported at the top, so import this module inside a function.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct
from msgspec.structs import replace
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from app.source.compiled import make_module, random_inputs
from app.source.generated import Source
from app.training.choices import CLASS_IDS, LOSSES
from app.training.multi_output import named
from app.training.objectives import forms
from app.training.registry import make_loss
from app.util import module_tree, rng
from app.util.frozen import FrozenMap
from app.util.torch_calls import FunctionCalls

if TYPE_CHECKING:
    from app.training.config import Choice
    from app.training.job import Job

HELD = 1 << 30  # bytes held for backward by a batch of default size
UNKNOWN = 16  # samples of it if these bytes are unknown
LEAST = 2  # samples of a batch: a batch norm in train mode needs two
_OF_CLASSES = ("weight", "pos_weight")  # parameters of a loss with an element per class
_KEEPS_VALUES = frozenset(
    """clone contiguous long int to type reshape view view_as reshape_as flatten unflatten squeeze unsqueeze permute
    transpose t movedim expand expand_as repeat tile chunk split select narrow roll flip detach __getitem__ unbind
    swapaxes ravel""".split()
)


class Probe(Struct, frozen=True):
    """Facts from running a net on meta tensors: `rows` maps an input's index to the size of the smallest table indexed
    by its integers, `bytes_per_sample` is the memory held for backward; None if unknown."""

    rows: FrozenMap[int, int] = FrozenMap()
    bytes_per_sample: int | None = None


@lru_cache(maxsize=16)
def probe(source: Source) -> Probe:
    """Run the network once on the meta device to find shapes and embedding sizes.

    A net that cannot run there runs on zeros where whole numbers go into it, for the sake of their tables.
    """
    on_meta = _looked_at(source, "meta")
    if on_meta.bytes_per_sample is None and any(
        not _is_real(spec.dtype) for spec in source.inputs
    ):
        return replace(_looked_at(source, "cpu"), bytes_per_sample=None)
    return on_meta


def _is_real(dtype: str) -> bool:
    kind = getattr(torch, dtype)
    return bool(kind.is_floating_point or kind.is_complex)


def _looked_at(source: Source, device: str) -> Probe:
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage._cdata] = storage.nbytes()
        return tensor

    tables: _Tables | None = None
    try:
        with (
            rng.borrowed(0),
            torch.device(device),
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            model = make_module(source)
            input_tensors = tuple(
                torch.zeros(spec.sizes(LEAST), dtype=getattr(torch, spec.dtype))
                for spec in source.inputs
            )
            tables = _Tables(input_tensors)
            with tables, saved_tensors_hooks(pack, lambda packed: packed):
                output = model(*input_tensors)
            there = (
                *module_tree.parameters(model),
                *module_tree.buffers(model),
                *input_tensors,
            )
            model_storages = {
                tensor.untyped_storage()._cdata
                for tensor in there
                if tensor.layout is torch.strided
            }
            saved_bytes = sum(
                size for key, size in saved.items() if key not in model_storages
            )
            saved_bytes += sum(
                leaf.nbytes for leaf in tree_leaves(output) if isinstance(leaf, Tensor)
            )  # what a loss keeps
        return Probe(FrozenMap(tables.rows), saved_bytes // LEAST)
    except (Exception, SystemExit):  # custom code may do anything on meta tensors
        return Probe(FrozenMap(tables.rows if tables is not None else {}))


class _Tables(FunctionCalls):
    """Tracks integers from a net's inputs to the embedding tables that they index."""

    def __init__(self, inputs: Iterable[Tensor]) -> None:
        super().__init__()
        self.rows: dict[int, int] = {}
        self._origin: Any = WeakIdKeyDictionary()
        for input_index, tensor in enumerate(inputs):
            if not tensor.is_floating_point() and not tensor.is_complex():
                self._origin[tensor] = input_index

    def visit(self, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        name = getattr(func, "__name__", "")
        self._note_lookup(name, args, kwargs)
        result = func(*args, **kwargs)
        input_index = self._input_of(args[0]) if args else None
        if input_index is not None and name in _KEEPS_VALUES:
            for leaf in tree_leaves(result):
                if isinstance(leaf, Tensor):
                    self._origin[leaf] = input_index
        return result

    def _input_of(self, value: Any) -> int | None:
        return self._origin.get(value) if isinstance(value, Tensor) else None

    def _note_lookup(self, name: str, args: Any, kwargs: Any) -> None:
        index, rows = None, None
        second = (
            args[1]
            if len(args) > 1
            else kwargs.get("weight", kwargs.get("num_classes"))
        )
        if name in ("embedding", "embedding_bag") and isinstance(second, Tensor):
            weight = (
                args[0]
                if name == "embedding_bag" and args[0].is_floating_point()
                else second
            )
            index, rows = (second if weight is args[0] else args[0]), weight.shape[0]
        elif name == "one_hot" and isinstance(second, int) and second > 0:
            index, rows = args[0], second
        elif name == "__getitem__" and args[0].dim():
            index, rows = (
                (args[1][0] if isinstance(args[1], tuple) and args[1] else args[1]),
                args[0].shape[0],
            )
        elif (
            name in ("index_select", "gather", "take_along_dim")
            and len(args) > 2
            and isinstance(second, int)
        ):
            index, rows = args[2], args[0].shape[second]
        input_index = self._input_of(index)
        if input_index is not None and rows:
            self.rows[input_index] = min(self.rows.get(input_index, rows), int(rows))


def samples(job: Job) -> int:
    """Return the default batch size: the project's, or fewer to stay below `HELD` bytes."""
    batch_size, sample_bytes = (
        job.training.batch_size,
        probe(job.source).bytes_per_sample,
    )
    if sample_bytes is None:
        return min(batch_size, UNKNOWN)
    return (
        min(batch_size, max(LEAST, HELD // sample_bytes))
        if sample_bytes
        else batch_size
    )


def inputs(source: Source, batch: int, seed: int) -> tuple[Tensor, ...]:
    """Return random tensors of the network's input shapes and dtypes, seeded.

    Integers are within the input's range and that of the tables they index; without either they are 0 or 1, for bytes 0
    to 255.
    """
    tables = (
        probe(source).rows
        if any(not _is_real(spec.dtype) for spec in source.inputs)
        else FrozenMap()
    )
    specs = []
    for index, spec in enumerate(source.inputs):
        rows = tables.get(index)
        if not _is_real(spec.dtype) and spec.dtype != "bool":
            high = (
                spec.high
                if spec.high is not None
                else 256
                if spec.dtype == "uint8" and rows is None
                else rows
            )
            high = min(high, rows) if high is not None and rows is not None else high
            low = spec.low if spec.low is not None else 0 if high is not None else None
            spec = replace(spec, low=low, high=high)
        specs.append(spec)
    with rng.borrowed(seed):
        return random_inputs(replace(source, inputs=tuple(specs)), batch)


def loss_of(job: Job) -> nn.Module:
    """Return the job's loss with random targets of the output shapes. Raises ChoiceError."""
    training = job.training
    modes = forms(job.source)
    output_names = {name for form in modes for name in form.values()}
    rows = [
        (row.output, OwnTarget(row.loss, training.seed), row.weight)
        for row in training.losses
        if row.output in output_names
    ]
    return OwnTargets(modes, rows) if rows else OwnTarget(training.loss, training.seed)


class OwnTarget(nn.Module):
    """A loss with a random target, the same for each output of the same shape.

    Losses of classes get ids below the size of dimension 1, of three dimensions (sample, place, class) of the last one.
    """

    target: Tensor | None

    def __init__(self, choice: Choice, seed: int) -> None:
        super().__init__()
        params = {
            name: value
            for name, value in choice.params.items()
            if name not in _OF_CLASSES
        }
        self.name, self.seed = choice.name, seed
        self.loss = make_loss(replace(choice, params=FrozenMap(params)))
        self.register_buffer("target", None, persistent=False)

    def forward(self, output: Tensor, _target: Any = None) -> Tensor:
        """Return the loss of the output; the given target is ignored."""
        ids = LOSSES.get(self.name) == CLASS_IDS
        if ids and output.dim() == 3:
            output = output.transpose(1, 2)
        shape = (
            tuple(output.shape)
            if not ids or output.dim() < 2
            else (output.shape[0], *output.shape[2:])
        )
        shape = () if ids and output.dim() < 2 else shape
        if self.target is None or tuple(self.target.shape) != shape:
            self.target = self._drawn(output.detach(), shape, ids)
        value: Tensor = self.loss(output, self.target)
        return value

    def _drawn(self, output: Tensor, shape: tuple[int, ...], ids: bool) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        if ids:
            classes = output.shape[1] if output.dim() > 1 else max(output.numel(), 1)
            return torch.randint(classes, shape, generator=generator).to(output.device)
        if self.name in ("BCEWithLogitsLoss", "BCELoss", "MultiLabelSoftMarginLoss"):
            drawn = torch.randint(2, shape, generator=generator).double()
        elif self.name == "PoissonNLLLoss":
            drawn = torch.randint(5, shape, generator=generator).double()
        else:
            drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
        if self.name == "KLDivLoss":  # it compares distributions
            drawn = drawn.softmax(-1) if drawn.dim() else drawn.sigmoid()
        return drawn.to(output)


class OwnTargets(nn.Module):
    """Weighted sum of such losses of several outputs; absent outputs are skipped. An output that is not given is left
    out.
    """

    whole = True  # it takes all that the net gives

    def __init__(
        self, modes: Any, rows: Iterable[tuple[str, OwnTarget, float]]
    ) -> None:
        super().__init__()
        self.modes, self.rows = modes, [(name, weight) for name, _, weight in rows]
        self.losses = nn.ModuleList([loss for _, loss, _ in rows])

    def forward(self, output: Any, _target: Any = None) -> Tensor:
        """Return the sum of losses for the outputs that are present. Raises ValueError if none of them has a loss."""
        outputs = named(output, self.modes)
        values = [
            weight * loss(outputs[name])
            for (name, weight), loss in zip(self.rows, self.losses, strict=True)
            if name in outputs
        ]
        if not values:
            raise ValueError(
                f"The network returned {', '.join(outputs)}, and none of these has a loss."
            )
        return torch.stack(values).sum()
