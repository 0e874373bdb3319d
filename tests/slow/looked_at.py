"""What public nets look at, held against their own eager code: attention maps, attributions, muted and patched losses.

    python -m tests.slow.looked_at [--out docs/measured/looked_at.md] [NAME ...]

Each net has random weights. Its fused attention is looked at by `app.features`; the maps are held against those that
the package's eager implementation returns for the same weights, or that its softmax gives. Integrated gradients are
summed. A head, a channel and a layer are muted, and one is patched, and the outputs are held against those of forward
hooks written here. Needs torchvision, and for some of the nets timm and transformers, which are left out if missing.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from app.features.interpret.compute import attribution
from app.features.interpret.compute.attention_maps import attentions
from app.features.interpret.compute.interventions import Interventions
from app.features.interpret.compute.subject import Subject, of_model
from app.features.interpret.values import INTEGRATED_GRADIENTS, Intervention, SampleLook
from app.util.torchvision_import import import_torchvision, mend_torchvision

TOLERANCE = 1e-5
Maps = list[
    Tensor
]  # (groups or batch, heads, queries, keys) of each attention, in order


@dataclass
class Case:
    """A net, an example, and a function that returns the maps of its eager implementation. `projection` is the module
    that gets the heads of attention number `muted`, side by side in its last axis; "" where none is called."""

    name: str
    model: nn.Module
    args: tuple[Any, ...]
    eager: Callable[[], Maps]
    kwargs: dict[str, Any] = field(default_factory=dict)
    projection: str = ""
    layer: str = ""


def seeded(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


# --- Nets


@contextmanager
def _softmax_noted(found: Maps) -> Iterator[None]:
    """Note what F.softmax returns, which eager attention is written with."""
    original = F.softmax

    def noted(*args: Any, **kwargs: Any) -> Tensor:
        found.append(original(*args, **kwargs))
        return found[-1]

    F.softmax = noted
    try:
        yield
    finally:
        F.softmax = original


def _multihead(model: nn.Module, *args: Any) -> Maps:
    """Return the weights that nn.MultiheadAttention itself returns when it is asked for them."""
    found: Maps = []

    def ask(module: nn.MultiheadAttention, given: Any, named: Any) -> Any:
        return given, {**named, "need_weights": True, "average_attn_weights": False}

    def note(module: nn.Module, _given: Any, output: Any) -> None:
        found.append(output[1])

    hooks = []
    for one in model.modules():
        if isinstance(one, nn.MultiheadAttention):
            hooks.append(one.register_forward_pre_hook(ask, with_kwargs=True))
            hooks.append(one.register_forward_hook(note))
    with torch.no_grad():
        model(*args)
    for hook in hooks:
        hook.remove()
    return found


def _torch_cases() -> Iterator[Case]:
    from tests.features.interpret.models import OWN

    for name in (
        "is_causal",
        "boolean mask",
        "additive mask, scale",
        "enable_gqa",
        "written out",
        "einsum",
    ):
        model, x = OWN[name]().eval(), seeded(1, 7, 24)
        yield Case(
            f"own: {name}",
            model,
            (x,),
            lambda model=model, x=x: [model.expected(x)],
            projection="out",
            layer="v",
        )
    model = nn.Transformer(32, 4, 3, 3, 64, batch_first=True).eval()
    given = (seeded(1, 9, 32), seeded(1, 6, 32))
    yield Case(
        "nn.Transformer",
        model,
        given,
        lambda: _multihead(model, *given),
        layer="encoder.layers.1",
    )


def _torchvision_cases() -> Iterator[Case]:
    models = import_torchvision("models")
    x = seeded(1, 3, 224, 224)
    vit = models.vit_b_16().eval()
    nn.init.normal_(
        vit.heads.head.weight, std=0.02, generator=torch.Generator().manual_seed(2)
    )  # zero at first
    yield Case(
        "torchvision vit_b_16",
        vit,
        (x,),
        lambda: _multihead(vit, x),
        layer="encoder.layers.encoder_layer_5",
    )
    for name in ("swin_t", "swin_v2_t"):
        model = models.get_model(name).eval()

        def eager(model: nn.Module = model) -> Maps:
            found: Maps = []
            with torch.no_grad(), _softmax_noted(found):
                model(x)
            return found

        yield Case(f"torchvision {name}", model, (x,), eager, layer="features.3")


def _timm_cases() -> Iterator[Case]:
    import timm

    for name in (
        "vit_tiny_patch16_224",
        "deit3_small_patch16_224",
        "eva02_tiny_patch14_224",
    ):
        model = timm.create_model(name).eval()
        x = seeded(1, *model.pretrained_cfg["input_size"])

        def eager(model: nn.Module = model, x: Tensor = x) -> Maps:
            """timm's attention has an unfused branch; what its dropout gets are the weights."""
            found: Maps = []
            hooks = []
            for one in model.modules():
                if hasattr(one, "fused_attn"):
                    one.fused_attn = False
                    hooks.append(
                        one.attn_drop.register_forward_pre_hook(
                            lambda _m, args: found.append(args[0])
                        )
                    )
            with torch.no_grad():
                model(x)
            for one in model.modules():
                if hasattr(one, "fused_attn"):
                    one.fused_attn = True
            for hook in hooks:
                hook.remove()
            return found

        yield Case(
            f"timm {name}",
            model,
            (x,),
            eager,
            projection="blocks.2.attn.proj",
            layer="blocks.3",
        )


def _transformers_cases() -> Iterator[Case]:
    import transformers

    small = {
        "num_hidden_layers": 3,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "intermediate_size": 96,
    }
    text = {"vocab_size": 99}
    grouped = {**small, **text, "num_key_value_heads": 2, "head_dim": 16}
    ids = torch.randint(3, 99, (1, 24), generator=torch.Generator().manual_seed(1))
    shapes: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
        "bert": (
            {**small, **text},
            {"input_ids": ids},
            "encoder.layer.1.attention.output.dense",
        ),
        "gpt2": (
            {"n_layer": 3, "n_embd": 64, "n_head": 4, **text},
            {"input_ids": ids},
            "h.1.attn.c_proj",
        ),
        "llama": (grouped, {"input_ids": ids}, "layers.1.self_attn.o_proj"),
        "mistral": (
            {**grouped, "sliding_window": 7},
            {"input_ids": ids},
            "layers.1.self_attn.o_proj",
        ),
        "qwen3": (grouped, {"input_ids": ids}, "layers.1.self_attn.o_proj"),
        "gemma3_text": (
            {**grouped, "sliding_window": 7},
            {"input_ids": ids},
            "layers.1.self_attn.o_proj",
        ),
        "vit": (
            {**small, "image_size": 64},
            {"pixel_values": seeded(1, 3, 64, 64)},
            "",
        ),
        "bart": (
            {
                "d_model": 64,
                "encoder_layers": 2,
                "decoder_layers": 2,
                "encoder_attention_heads": 4,
                "decoder_attention_heads": 4,
                "encoder_ffn_dim": 96,
                "decoder_ffn_dim": 96,
                **text,
            },
            {"input_ids": ids, "decoder_input_ids": ids[:, :9]},
            "encoder.layers.1.self_attn.out_proj",
        ),
        "t5": (
            {
                "d_model": 64,
                "d_kv": 16,
                "num_layers": 2,
                "num_heads": 4,
                "d_ff": 96,
                **text,
            },
            {"input_ids": ids, "decoder_input_ids": ids[:, :9]},
            "encoder.block.1.layer.0.SelfAttention.o",
        ),
    }
    for kind, (sizes, given, projection) in shapes.items():
        config = transformers.CONFIG_MAPPING[kind](**sizes)
        try:
            model = transformers.AutoModel.from_config(
                config, attn_implementation="sdpa"
            ).eval()
        except ValueError:  # it has no fused attention
            model = transformers.AutoModel.from_config(
                config, attn_implementation="eager"
            ).eval()
        other = transformers.AutoModel.from_config(
            transformers.CONFIG_MAPPING[kind](**sizes), attn_implementation="eager"
        ).eval()
        other.load_state_dict(model.state_dict())

        def eager(other: nn.Module = other, given: dict[str, Any] = given) -> Maps:
            with torch.no_grad():
                found = other(**given, output_attentions=True)
            if getattr(found, "encoder_attentions", None) is None:
                return [*found.attentions]
            pairs = zip(found.decoder_attentions, found.cross_attentions, strict=True)
            return [*found.encoder_attentions, *(one for pair in pairs for one in pair)]

        named = {name for name, _ in model.named_modules()}
        yield Case(
            f"transformers {kind}",
            model,
            (),
            eager,
            given,
            projection if projection in named else "",
            _middle_layer(model),
        )


def _middle_layer(model: nn.Module) -> str:
    """Return the second module of the first list of modules."""
    name = next(
        name
        for name, one in model.named_modules()
        if isinstance(one, nn.ModuleList) and len(one) > 1
    )
    return f"{name}.1"


def cases() -> Iterator[Case]:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    torch.manual_seed(0)
    yield from _torch_cases()
    yield from _torchvision_cases()
    for package, more in (("timm", _timm_cases), ("transformers", _transformers_cases)):
        try:
            __import__(package)
        except ImportError:
            print(f"{package} is not installed: its nets are left out", file=sys.stderr)
            continue
        yield from more()


# --- What is measured


@dataclass
class Row:
    """What was measured of a net; empty texts for what it has none of."""

    name: str
    count: int
    sizes: str
    kinds: str
    maps: float
    check: float
    complete: str
    same: str

    @property
    def good(self) -> bool:
        return self.maps <= TOLERANCE and "not" not in self.complete + self.same


def measured(case: Case) -> Row:
    model = case.model
    found, _ = attentions(model, lambda: model(*case.args, **case.kwargs), 1)
    expected = case.eager()
    if len(found) != len(expected):
        raise AssertionError(
            f"{case.name}: {len(found)} attentions found, and {len(expected)} are computed"
        )
    largest = 0.0
    for one, own in zip(found, expected, strict=True):
        maps = torch.tensor(one.maps)
        own = own.detach().float()
        largest = max(largest, float((maps - own.reshape(maps.shape)).abs().max()))
    sizes = dict.fromkeys(
        f"{one.groups * one.heads}×{one.queries}×{one.keys}" for one in found
    )
    kinds = dict.fromkeys(
        one.kind.removeprefix("_scaled_dot_product_") for one in found
    )
    subject = of_model(model, case.args, case.kwargs)
    return Row(
        case.name,
        len(found),
        ", ".join([*sizes][:3]),
        ", ".join(kinds),
        largest,
        max(one.error for one in found),
        _completeness(subject),
        _same(case, subject, found),
    )


def _completeness(subject: Subject) -> str:
    one = attribution.attribute(subject, SampleLook(0), INTEGRATED_GRADIENTS)
    return f"{'' if one.complete else 'not: '}{one.incompleteness:.3%} in {one.steps:,} steps"


def _same(case: Case, subject: Subject, found: Any) -> str:
    """Compare changed outputs with those of hooks written here, bit for bit."""
    model, told = case.model, []
    layer = Intervention(case.layer)
    told.append(
        (
            "layer",
            _changed(subject, layer),
            _hooked(case, case.layer, lambda out: torch.zeros_like(out)),
        )
    )
    other = [
        one * 0.5 + 1 if one.is_floating_point() else one.flip(-1)
        for one in subject.tensors
    ]
    held = _output_of(subject, case.layer, other)
    changes = Interventions(model, (Intervention(case.layer, source=1),), 1)
    with subject.quiet():
        with changes.recording([Intervention(case.layer, source=1)]):
            subject.run(*other)
        with changes.applied():
            patched = subject.scores(subject.run(*subject.tensors))
    told.append(("patch", patched, _hooked(case, case.layer, lambda _out: held)))
    if case.projection:
        # The attention whose heads go into this projection: the one of its module, or of the model itself.
        one = max(
            found,
            key=lambda each: len(os.path.commonprefix((each.path, case.projection))),
        )
        told.append(
            (
                "head",
                _changed(subject, Intervention(one.path, one.call, head=1)),
                _head_by_hand(case, one.heads),
            )
        )
    same = [name for name, ours, theirs in told if torch.equal(ours, theirs)]
    moved = [name for name, ours, _ in told if not torch.equal(ours, _plain(subject))]
    if len(same) < len(told) or len(moved) < len(told):
        return f"not: {', '.join(name for name, *_ in told if name not in same or name not in moved)}"
    return ", ".join(same)


def _plain(subject: Subject) -> Tensor:
    with torch.no_grad():
        return subject.scores(subject.run(*subject.tensors))


def _changed(subject: Subject, change: Intervention) -> Tensor:
    changes = Interventions(subject.model, (change,), 1)
    with subject.quiet(), changes.applied():
        return subject.scores(subject.run(*subject.tensors))


def _first(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else output[0]


def _output_of(subject: Subject, path: str, tensors: list[Tensor]) -> Tensor:
    held: list[Tensor] = []
    handle = subject.model.get_submodule(path).register_forward_hook(
        lambda _m, _a, out: held.append(_first(out))
    )
    with torch.no_grad():
        subject.run(*tensors)
    handle.remove()
    return held[0].clone()


def _hooked(case: Case, path: str, change: Callable[[Tensor], Tensor]) -> Tensor:
    def hook(_module: nn.Module, _args: Any, output: Any) -> Any:
        if isinstance(output, Tensor):
            return change(output)
        return (change(output[0]), *output[1:])

    handle = case.model.get_submodule(path).register_forward_hook(hook)
    try:
        return _plain(of_model(case.model, case.args, case.kwargs))
    finally:
        handle.remove()


def _head_by_hand(case: Case, heads: int) -> Tensor:
    def hook(_module: nn.Module, args: Any) -> Any:
        x = args[0].clone()
        width = x.shape[-1] // heads
        x[..., width : 2 * width] = 0
        return (x, *args[1:])

    handle = case.model.get_submodule(case.projection).register_forward_pre_hook(hook)
    try:
        return _plain(of_model(case.model, case.args, case.kwargs))
    finally:
        handle.remove()


# --- The table


def table(rows: list[Row], failed: list[str]) -> str:
    good = sum(row.good for row in rows)
    lines = [
        "# Attention of public nets",
        "",
        f"Made by `python -m tests.slow.looked_at`: {good} of {len(rows) + len(failed)} nets have maps equal to "
        f"{TOLERANCE:g}, complete",
        "attributions and equal changed outputs. Nets with random weights. *Maps* is the largest difference",
        "between the weights found and those of the eager implementation (`output_attentions=True`,",
        "`need_weights=True`, timm's unfused branch, its softmax), *check* the largest difference between weights",
        "times values and the output of the same call, relative to the largest output. *Completeness* is by how",
        "much the integrated gradients of the predicted class miss the difference of the scores. *Bit for bit*",
        "names what was changed with outputs equal to those of forward hooks written by hand.",
        "",
        "| net | attentions | maps × queries × keys | computed by | maps | check | completeness | bit for bit |",
        "|-|-|-|-|-|-|-|-|",
    ]
    lines += [
        f"| {row.name} | {row.count} | {row.sizes} | {row.kinds} | {row.maps:.1e} | {row.check:.1e} | {row.complete} | "
        f"{row.same} |"
        for row in rows
    ]
    lines += [f"| {one} |" + " |" * 7 for one in failed]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Hold what nets look at against their eager code."
    )
    parser.add_argument(
        "names", nargs="*", help="nets whose name contains one of these (all)"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    mend_torchvision()
    rows: list[Row] = []
    failed: list[str] = []
    for case in cases():
        if options.names and not any(name in case.name for name in options.names):
            continue
        try:
            rows.append(measured(case))
        except Exception as error:
            failed.append(
                f"{case.name}: {type(error).__name__}: {error}".replace("|", "/")[:200]
            )
            print(failed[-1], flush=True)
            continue
        print(rows[-1], flush=True)
    if options.out is not None:
        options.out.write_text(table(rows, failed), "utf-8")
    return int(bool(failed) or not all(row.good for row in rows))


if __name__ == "__main__":
    sys.exit(main())
