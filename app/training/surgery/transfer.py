"""Move the layers that stay into another net: functions that are copied verbatim into the exported `train.py`.

A widened layer keeps its old units in front. Its new units are initialised as torch does, and the layers behind it
multiply them with zeros, so the function is preserved (the zero-initialised expansions of Gesmundo and Maile,
"Composable function-preserving expansions for Transformer architectures", 2023). Unlike the copies of Net2WiderNet
(Chen, Goodfellow and Shlens, "Net2Net", 2016) no two units are equal, so no noise has to break their symmetry: the
zeros have gradients at the first step, the new units from the second on. New layers begin as the identity where they
can, as in Net2DeeperNet, and a new residual branch begins at zero.

torch is imported at the top since the code runs alone in that script: import this module lazily.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn


def transfer(
    before: nn.Module,
    after: nn.Module,
    layers: Sequence[tuple[str, str]],
    starts: Sequence[tuple[str, str, str]] = (),
    segments: Sequence[tuple[str, Sequence[tuple[int, int]]]] = (),
) -> tuple[
    list[tuple[str, str, str, str]],
    list[tuple[nn.Parameter, nn.Parameter, Callable[[Tensor], Tensor]]],
]:
    """Put the parameters and buffers of `before` into `after`, a freshly initialised net, and return a report by layer.

    `layers` are the paths, before and after, of layers that stay; where the shapes are equal, `after` gets the very
    tensors. `starts` says how new layers begin: path, "identity", "zero" or "plain", and why. `segments` has the old
    and new sizes of the parts of a layer's input where these are several. Nothing of `before` is changed, nor which
    parameters require gradients. Returns a row for each layer (path before, path after, what became of it, why), and
    of every parameter that was resized or copied the old and the new one, with a function that brings a tensor of the
    old shape, such as a moment, into the new shape.
    """
    parts, begun = dict(segments), {path: (how, reason) for path, how, reason in starts}
    rows: list[tuple[str, str, str, str]] = []
    changed: list[tuple[nn.Parameter, nn.Parameter, Callable[[Tensor], Tensor]]] = []
    placed: dict[
        int, Tensor
    ] = {}  # what takes the place of a tensor of `after`, by identity
    reused: set[int] = set()
    for old_path, new_path in layers:
        outcome, reason, pairs = layer_plan(
            before, after, old_path, new_path, parts.get(new_path)
        )
        for old, fresh, ways, cleared in pairs:
            if id(fresh) in placed:  # tied to one that has its values
                continue
            if ways is None and id(old) not in reused:
                placed[id(fresh)] = old
                reused.add(id(old))
                continue
            if ways is None:
                ways = tuple(((0, 0, size),) for size in old.shape)
                outcome, reason = (
                    "copied",
                    "No longer tied: a copy of the weights that were shared.",
                )
            with torch.no_grad():
                place(fresh, None, cleared)
                place(fresh, old, ways)
            placed[id(fresh)] = fresh
            if isinstance(old, nn.Parameter) and isinstance(fresh, nn.Parameter):
                changed.append((old, fresh, resizing(fresh.shape, ways)))
        if pairs or outcome != "kept":
            rows.append((old_path, new_path, outcome, reason))
    for path, owner, name in others(after, [new for _, new in layers], begun):
        parameters = [owner._parameters.get(name)] if name else list(owner.parameters())
        if any(id(parameter) in placed for parameter in parameters):
            rows.append(("", path, "tied", "Shares the weights of another layer."))
        else:
            rows.append(
                ("", path, *begin(owner, name, *begun.get(path, ("plain", ""))))
            )
    rows += [
        (path, "", "removed", "")
        for path, _, _ in others(before, [old for old, _ in layers], ())
    ]
    for module in after.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if id(tensor) in placed:
                    tensors[name] = placed[id(tensor)]  # type: ignore[assignment]
    return rows, changed


def others(
    net: nn.Module, paths: Collection[str], units: Collection[str]
) -> Iterator[tuple[str, nn.Module, str]]:
    """Yield the layers that are not in `paths`: path, owner, and the name of a free tensor, "" for a module.

    Layers are the modules in `units`, those without modules inside, and parameters and buffers beside modules.
    """
    done = set(paths)
    for path, module in net.named_modules():
        pieces = path.split(".")
        if path and any(
            ".".join(pieces[:end]) in done for end in range(1, len(pieces) + 1)
        ):
            continue
        if path in units or (
            path
            and not module._modules
            and type(module) not in (nn.Module, nn.ParameterDict)
        ):
            done.add(path)
            yield path, module, ""
            continue
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            full_name = f"{path}.{name}".lstrip(".")
            if tensor is not None and full_name not in done:
                yield full_name, module, name


def tensors_at(net: nn.Module, path: str) -> list[tuple[str, nn.Module, str, Tensor]]:
    """Return the tensors of a module, or the one at a path: name below it, owner, name in the owner, tensor."""
    above, _, last = path.rpartition(".")
    owner = net.get_submodule(above)
    if last not in owner._modules:
        free_tensor = owner._parameters.get(last, owner._buffers.get(last))
        return [] if free_tensor is None else [("", owner, last, free_tensor)]
    return [
        (f"{inner}.{name}".lstrip("."), module, name, tensor)
        for inner, module in net.get_submodule(path).named_modules(
            remove_duplicate=False
        )
        for tensors in (module._parameters, module._buffers)
        for name, tensor in tensors.items()
        if tensor is not None
    ]


def layer_plan(
    before: nn.Module,
    after: nn.Module,
    old_path: str,
    new_path: str,
    parts: Sequence[tuple[int, int]] | None,
) -> tuple[
    str,
    str,
    list[
        tuple[Tensor, Tensor, tuple[tuple[tuple[int, int, int], ...], ...] | None, Any]
    ],
]:
    """Return what becomes of a layer that stays, why, and its tensors: old, new, and of a resized one the ways and the
    part that is set to zero first, see `axes`.
    """
    olds = {
        name: (owner, tensor) for name, owner, _, tensor in tensors_at(before, old_path)
    }
    news = tensors_at(after, new_path)
    pairs: list[
        tuple[Tensor, Tensor, tuple[tuple[tuple[int, int, int], ...], ...] | None, Any]
    ] = []
    sizes, notes, frozen = [], [], []
    for name, owner, attribute, fresh in news:
        if name not in olds:
            continue
        holder, old = olds[name]
        if type(holder).__name__ != type(owner).__name__ or old.ndim != fresh.ndim:
            return "initialised", "Its type changed.", []
        if isinstance(fresh, nn.Parameter):
            frozen.append((not old.requires_grad, not fresh.requires_grad))
        if old.shape == fresh.shape:
            pairs.append((old, fresh, None, ()))
            continue
        ways, cleared, note = axes(holder, owner, attribute, old, fresh, parts)
        if ways is None:
            return "initialised", note, []
        pairs.append((old, fresh, ways, cleared))
        sizes.append((tuple(old.shape), tuple(fresh.shape)))
        notes += [note] if note and note not in notes else []
    if news and olds and not pairs:
        return "initialised", "The names of its tensors changed.", []
    for name, _, attribute, fresh in news:
        if name not in olds and "bias" in attribute and isinstance(fresh, nn.Parameter):
            with torch.no_grad():
                fresh.zero_()
            notes.append(f"The new {name} starts at zero.")
    outcome, reason = "kept", settings_changed(before, after, old_path, new_path)
    if sizes:
        grows = any(
            now > was
            for old_shape, other in sizes
            for was, now in zip(old_shape, other, strict=True)
        )
        shrinks = any(
            now < was
            for old_shape, other in sizes
            for was, now in zip(old_shape, other, strict=True)
        )
        outcome = "resized" if grows and shrinks else "widened" if grows else "narrowed"
        notes += (
            ["The first units are kept, the others are discarded."] if shrinks else []
        )
        reason = " ".join((f"{sizes[0][0]} → {sizes[0][1]}.", *notes))
    elif frozen and all(now and not was for was, now in frozen):
        outcome, reason = (
            "frozen",
            reason or "Frozen from here on; its weights are kept.",
        )
    elif frozen and all(was and not now for was, now in frozen):
        outcome, reason = (
            "unfrozen",
            reason or "Trainable from here on, with its current weights.",
        )
    elif reason or notes:
        outcome, reason = "changed", " ".join((*([reason] if reason else []), *notes))
    return outcome, reason, pairs


def settings_changed(
    before: nn.Module, after: nn.Module, old_path: str, new_path: str
) -> str:
    """Return which settings of a module differ, as its representation shows them, "" for none and for free tensors."""
    texts = []
    for net, path in ((before, old_path), (after, new_path)):
        above, _, last = path.rpartition(".")
        texts.append(
            net.get_submodule(path).extra_repr()
            if last in net.get_submodule(above)._modules
            else ""
        )
    old, new = (text.split(", ") for text in texts)
    gone, come = (
        [setting for setting in old if setting not in new],
        [setting for setting in new if setting not in old],
    )
    return (
        f"{', '.join(gone) or 'default'} → {', '.join(come) or 'default'}."
        if gone or come
        else ""
    )


def axes(
    holder: nn.Module,
    owner: nn.Module,
    name: str,
    old: Tensor,
    fresh: Tensor,
    parts: Sequence[tuple[int, int]] | None,
) -> tuple[
    tuple[tuple[tuple[int, int, int], ...], ...] | None,
    tuple[tuple[tuple[int, int, int], ...], ...],
    str,
]:
    """Return which parts of a resized tensor go where, axis by axis, each as (old start, new start, size).

    Second, the part of the new tensor that begins at zero: what old units take of new inputs. Last, a remark; or, with
    None first, why the tensor is initialised again. An axis of inputs follows `parts`; on others the first units stay.
    """
    inputs: tuple[int, ...] = ()  # axes that belong to the input of the layer
    summed = True  # whether the layer sums over them
    blocks, note = 1, ""  # equal parts of the first axis, such as gates
    kernel = 2 if "Conv" in type(owner).__name__ and name == "weight" else old.ndim
    if isinstance(owner, nn.Linear):
        inputs = (1,) if name == "weight" else ()
    elif isinstance(owner, nn.modules.conv._ConvNd) and isinstance(
        holder, nn.modules.conv._ConvNd
    ):
        if (holder.groups, owner.groups) != (1, 1):
            every = (
                holder.groups == holder.in_channels
                and owner.groups == owner.in_channels
            )
            if owner.transposed or (old.shape[:2] != fresh.shape[:2] and not every):
                return None, (), "The channels of its groups changed."
            inputs, summed = (0,) if every else (), False
        elif name == "weight":
            inputs = (0,) if owner.transposed else (1,)
        if kernel < old.ndim and old.shape[2:] != fresh.shape[2:]:
            centred = same_position(holder, owner)
            note = (
                "The old kernel is centred in the new one."
                if centred
                else (
                    "The old kernel is centred in the new one, whose padding or stride does not match it: the "
                    "function changes."
                )
            )
    elif isinstance(owner, nn.RNNBase):
        if owner.proj_size or not isinstance(holder, nn.RNNBase) or holder.proj_size:
            return None, (), "A recurrent layer with a projection cannot be resized."
        blocks = fresh.shape[0] // owner.hidden_size
        if name.startswith("weight"):
            inputs = (1,)
            both = (
                owner.bidirectional
                and name.startswith("weight_ih")
                and "_l0" not in name
            )
            hidden = name.startswith("weight_hh") or "_l0" not in name
            parts = (
                ((holder.hidden_size, owner.hidden_size),) * (2 if both else 1)
                if hidden
                else parts
            )
    elif isinstance(owner, nn.LayerNorm | nn.GroupNorm | nn.RMSNorm):
        inputs, summed, note = (
            (old.ndim - 1,),
            False,
            "Its statistics cover other features now: the function changes.",
        )
    elif isinstance(owner, nn.modules.batchnorm._NormBase | nn.PReLU):
        if old.numel() == 1:
            return None, (), "One slope for all channels became one per channel."
        inputs, summed = (0,), False
    elif (
        isinstance(owner, nn.MultiheadAttention)
        or type(owner).__name__ == "NonDynamicallyQuantizableLinear"
    ):
        return None, (), "With another embed_dim the heads of attention differ."
    elif not isinstance(owner, nn.Embedding | nn.EmbeddingBag) and type(
        owner
    ).__module__.startswith("torch.nn"):
        if type(owner) not in (nn.ParameterDict, nn.Module):
            return (
                None,
                (),
                f"{type(owner).__name__} cannot be resized: only some kinds of layers can.",
            )
    ways: list[tuple[tuple[int, int, int], ...]] = []
    for axis, (was, now) in enumerate(zip(old.shape, fresh.shape, strict=True)):
        if axis >= kernel:
            less = min(was, now)
            ways.append((((was - less) // 2, (now - less) // 2, less),))
        elif axis in inputs and parts is not None and was != now:
            scaled_ways = scaled(parts, was, now)
            if scaled_ways is None:
                return (
                    None,
                    (),
                    "Its input comes from other layers, or has another size, now.",
                )
            ways.append(scaled_ways)
        elif axis == 0 and blocks > 1:
            ways.append(
                tuple(
                    (
                        gate * (was // blocks),
                        gate * (now // blocks),
                        min(was, now) // blocks,
                    )
                    for gate in range(blocks)
                )
            )
        else:
            ways.append(((0, 0, min(was, now)),))
    sums = set(range(kernel, old.ndim)) | (set(inputs) if summed else set())
    zeros = tuple(
        ((0, 0, size),) if axis in sums else ways[axis]
        for axis, size in enumerate(fresh.shape)
    )
    return tuple(ways), zeros if sums else (), note


def same_position(holder: nn.Module, owner: nn.Module) -> bool:
    """Return whether two convolutions of other kernels take their windows around the same pixels."""
    if not isinstance(holder, nn.modules.conv._ConvNd) or not isinstance(
        owner, nn.modules.conv._ConvNd
    ):
        return False
    if holder.stride != owner.stride or holder.dilation != owner.dilation:
        return False
    if holder.padding == owner.padding == "same":
        return all(
            (new - old) % 2 == 0
            for old, new in zip(holder.kernel_size, owner.kernel_size, strict=True)
        )
    if isinstance(holder.padding, str) or isinstance(owner.padding, str):
        return False
    sizes = zip(
        holder.kernel_size,
        owner.kernel_size,
        holder.padding,
        owner.padding,
        owner.dilation,
        strict=True,
    )
    return all(
        (new - old) * step == 2 * (wide - narrow)
        for old, new, narrow, wide, step in sizes
    )


def scaled(
    parts: Sequence[tuple[int, int]], was: int, now: int
) -> tuple[tuple[int, int, int], ...] | None:
    """Return the ways of an axis whose parts have these sizes, old and new, in proportion; None if nothing is kept.

    >>> scaled([(2, 4), (3, 3)], 10, 14)
    ((0, 0, 4), (4, 8, 6))
    """
    olds, news = sum(old for old, _ in parts), sum(new for _, new in parts)
    if not olds or not news or was % olds or now % news or was // olds != now // news:
        return None
    unit, ways, old_start, new_start = was // olds, [], 0, 0
    for old, new in parts:
        if old and new:
            ways.append((old_start * unit, new_start * unit, min(old, new) * unit))
        old_start, new_start = old_start + old, new_start + new
    return tuple(ways) or None


def place(
    target: Tensor,
    source: Tensor | None,
    ways: tuple[tuple[tuple[int, int, int], ...], ...],
    axis: int = 0,
) -> None:
    """Copy a tensor into a resized one, or zeros for None; nothing without ways.

    >>> wide = torch.ones(2, 3)
    >>> place(wide, torch.tensor([[5.0, 6.0]]), (((0, 0, 1),), ((0, 0, 1), (1, 2, 1))))
    >>> wide.tolist()
    [[5.0, 1.0, 6.0], [1.0, 1.0, 1.0]]
    """
    for old, new, size in ways[axis] if ways else ():
        there = target.narrow(axis, new, size)
        here = None if source is None else source.narrow(axis, old, size)
        if axis + 1 < len(ways):
            place(there, here, ways, axis + 1)
        elif here is None:
            there.zero_()
        else:
            there.copy_(here)


def resizing(
    shape: torch.Size, ways: tuple[tuple[tuple[int, int, int], ...], ...]
) -> Callable[[Tensor], Tensor]:
    """Return a function that resizes a tensor of the old shape, such as a moment, with zeros for new entries."""

    def resized(old: Tensor) -> Tensor:
        new = old.new_zeros(shape)
        place(new, old, ways)
        return new

    return resized


def begin(owner: nn.Module, name: str, how: str, reason: str) -> tuple[str, str]:
    """Initialise a new layer, or the free tensor `name` of `owner`.

    Return the initialisation used, and why it is not the requested one.
    """
    if name:
        tensor = owner._parameters.get(name)
        if tensor is None or how != "zero":
            return ("initialised" if tensor is not None else "new"), reason
        with torch.no_grad():
            tensor.zero_()
        return "zero", reason
    if next(owner.parameters(), None) is None and next(owner.buffers(), None) is None:
        return "new", reason or "It has no weights."
    with torch.no_grad():
        if how == "zero":
            last = owner.out_proj if isinstance(owner, nn.MultiheadAttention) else owner
            tensors = list(last._parameters.values()) if last_of_branch(owner) else []
            for tensor in tensors:
                if tensor is not None:
                    tensor.zero_()
            return (
                ("zero", reason)
                if tensors
                else ("initialised", "It cannot start at zero.")
            )
        if how == "identity":
            problem = as_identity(owner)
            return ("identity", reason) if not problem else ("initialised", problem)
    return "initialised", reason


def last_of_branch(owner: nn.Module) -> bool:
    """Return whether a layer gives zeros when its own parameters are zero."""
    kinds = (
        nn.Linear,
        nn.Bilinear,
        nn.modules.conv._ConvNd,
        nn.modules.batchnorm._NormBase,
        nn.LayerNorm,
        nn.GroupNorm,
        nn.RMSNorm,
        nn.Embedding,
        nn.EmbeddingBag,
        nn.MultiheadAttention,
    )
    return isinstance(owner, kinds)


def as_identity(owner: nn.Module) -> str:
    """Make a layer the identity, or copy its input into its first units; return why that is impossible, else ""."""
    if isinstance(owner, nn.Linear):
        if owner.out_features < owner.in_features:
            return (
                "It has fewer output than input features, so it cannot be the identity."
            )
        nn.init.eye_(owner.weight[: owner.in_features])
        if owner.bias is not None:
            owner.bias[: owner.in_features].zero_()
        return ""
    if isinstance(owner, nn.modules.conv._ConvNd):
        return conv_as_identity(owner)
    if isinstance(owner, nn.PReLU):
        owner.weight.fill_(1.0)
        return ""
    if isinstance(owner, nn.TransformerEncoderLayer) and owner.norm_first:
        for layer in (owner.self_attn.out_proj, owner.linear2):
            for tensor in layer.parameters():
                tensor.zero_()
        return ""
    norms = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
    if isinstance(owner, norms):
        return "A norm rescales its input, so it cannot be the identity."
    return f"{type(owner).__name__} cannot be the identity."


def conv_as_identity(conv: Any) -> str:
    """Give a convolution a one in the middle of its kernel; return why it cannot be the identity, else ""."""
    sizes = conv.kernel_size
    if any(size % 2 == 0 for size in sizes) or any(step != 1 for step in conv.stride):
        return "A convolution is the identity only with an odd kernel and stride 1."
    pads = tuple(
        step * (size // 2) for size, step in zip(sizes, conv.dilation, strict=True)
    )
    if conv.padding not in ("same", pads) or any(
        getattr(conv, "output_padding", ()) or ()
    ):
        return f"Its output has another size than its input: padding={pads[0]} would allow the identity."
    narrow, wide = conv.in_channels, conv.out_channels
    if wide < narrow or (conv.groups > 1 and wide != narrow):
        return "It has fewer output than input channels, so it cannot be the identity."
    if conv.groups > 1 and conv.transposed:
        return "A transposed convolution with groups cannot be the identity."
    middle = tuple(size // 2 for size in sizes)
    if conv.groups == 1:
        kernel = conv.weight[:, :narrow] if conv.transposed else conv.weight[:narrow]
        kernel.zero_()
        for channel in range(narrow):
            kernel[(channel, channel, *middle)] = 1.0
    else:
        channels_per_group = narrow // conv.groups
        conv.weight.zero_()
        for channel in range(narrow):
            conv.weight[(channel, channel % channels_per_group, *middle)] = 1.0
    if conv.bias is not None:
        conv.bias[:narrow].zero_()
    return ""
