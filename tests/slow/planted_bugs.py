"""Plants bugs into copies of models and has both compared: the planted layer has to be named, and none of equal models.

A bug is an edit of the text of one class, put into one of its instances, or a change to one module that a person would
make by mistake. Whether it changes anything is told without the program's own comparison: one that changes no output,
gradient or buffer in double precision is left out and counted.

    python -m tests.slow.planted_bugs [--json FILE]
"""

from __future__ import annotations

import argparse
import copy
import json
import linecache
import sys
import tempfile
import time
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from app.features.compare.compute.compare import Batch, compare_models, compare_modes
from app.features.compare.values import Difference, parse_modes
from app.util.torchvision_import import import_torchvision
from tests.slow.material import diff_nets, held_out_bugs, held_out_nets

SIZES = {
    "ResNet": 16,
    "UNet": 27,
    "Vit": 16,
    "MobileNet": 16,
    "Mixer": 16,
    "resnet18": 64,
    "squeezenet1_1": 64,
}
OWN = (
    "Gpt",
    "Llama",
    "Bert",
    "Vit",
    "ResNet",
    "UNet",
    "MobileNet",
    "Tagger",
    "Wave",
    "Mixer",
)
TORCHVISION = ("resnet18", "squeezenet1_1")
NETS = (*OWN, *TORCHVISION)


def make(name: str, seed: int = 0) -> nn.Module:
    """Make a net with weights that the seed determines."""
    torch.manual_seed(seed)
    if name in TORCHVISION:
        made: nn.Module = import_torchvision("models").get_model(name, weights=None)
        return made
    net: nn.Module = getattr(
        held_out_nets if name in held_out_nets.NETS else diff_nets, name
    )()
    return net


def batch_of(name: str, size: int = 4) -> Batch:
    """Make its batch."""
    if name in held_out_nets.NETS:
        return Batch(held_out_nets.batch_of(name, size))
    generator = torch.Generator().manual_seed(1)
    if name in ("Gpt", "Llama", "Bert", "Tagger"):
        ids = torch.randint(1, 60, (size, 12), generator=generator)
        ids[:, 10:] = 0 if name == "Bert" else ids[:, 10:]
        return Batch((ids,))
    if name == "Wave":
        return Batch((torch.randn(size, 1, 40, generator=generator),))
    side = SIZES[name]
    return Batch((torch.rand(size, 3, side, side, generator=generator),))


# --- Bugs: edits of a class's text


@dataclass(frozen=True)
class Bug:
    """A kind of bug in a net; `paths` are the layers that may be named, and `plant` changes a copy of the net."""

    kind: str
    net: str
    paths: tuple[str, ...]
    plant: Callable[[nn.Module], object]


EDITS = (
    # kind, net, path, old text, new text
    (
        "missing scale",
        "Gpt",
        "blocks.1.attention",
        "scores / math.sqrt(c // self.heads)",
        "scores * 1",
    ),
    ("missing scale", "Llama", "", "self.tokens(ids) * self.scale", "self.tokens(ids)"),
    ("missing scale", "Bert", "layers.1", " / (c // self.heads) ** 0.5", ""),
    (
        "missing scale",
        "Vit",
        "blocks.1",
        "self.gamma * self.attention",
        "self.attention",
    ),
    (
        "rotary off by one",
        "Llama",
        "blocks.1.attention.rotary",
        "torch.arange(0, x.shape[-2])[:, None]",
        "torch.arange(1, x.shape[-2] + 1)[:, None] * 1.1",
    ),
    (
        "rotary halves",
        "Llama",
        "blocks.2.attention.rotary",
        "x[..., ::2], x[..., 1::2]",
        "*x.chunk(2, -1),",
    ),
    ("mask off by one", "Gpt", "blocks.0.attention", "triu(1)", "triu(2)"),
    ("mask off by one", "Bert", "", "(ids == 0)", "(ids == 0).roll(1, 1)"),
    ("mask missing", "Llama", "blocks.1.attention", ", is_causal=True", ""),
    (
        "mask not added",
        "Bert",
        "layers.2",
        "scores = scores + mask",
        "scores = scores * 1",
    ),
    ("missing residual", "Gpt", "blocks.2", "x = x + self.mlp", "x = self.mlp"),
    (
        "missing residual",
        "Llama",
        "blocks.0",
        "x = x + self.attention",
        "x = self.attention",
    ),
    ("missing residual", "ResNet", "layer3", "y = y + self.shortcut(x)", "y = y * 1"),
    (
        "missing residual",
        "Wave",
        "layers.2",
        "return x + self.mix(y)",
        "return self.mix(y)",
    ),
    (
        "missing residual",
        "MobileNet",
        "blocks.1",
        "return x + self.bn3",
        "return self.bn3",
    ),
    (
        "swapped q and k",
        "Gpt",
        "blocks.1.attention",
        "q, k, v = self.qkv",
        "k, q, v = self.qkv",
    ),
    (
        "swapped q and k",
        "Llama",
        "blocks.1.attention",
        "self.rotary(q), self.rotary(k), v",
        "self.rotary(k), self.rotary(q), v",
    ),
    (
        "swapped q and k",
        "Bert",
        "layers.0",
        "(self.query, self.key, self.value)",
        "(self.key, self.query, self.value)",
    ),
    (
        "wrong axis of softmax",
        "Gpt",
        "blocks.2.attention",
        "softmax(dim=-1)",
        "softmax(dim=1)",
    ),
    (
        "wrong axis of softmax",
        "Bert",
        "layers.1",
        "F.softmax(scores, dim=-1)",
        "F.softmax(scores, dim=-2)",
    ),
    ("wrong axis of softmax", "Tagger", "", "dim=-1)", "dim=1)"),
    (
        "norm after",
        "Gpt",
        "blocks.1",
        "self.attention(self.norm1(x))",
        "self.norm1(self.attention(x))",
    ),
    (
        "norm after",
        "Llama",
        "blocks.2",
        "self.mlp(self.norm2(x))",
        "self.norm2(self.mlp(x))",
    ),
    (
        "norm after",
        "Mixer",
        "blocks.1",
        "self.channels(self.norm2(x))",
        "self.norm2(self.channels(x))",
    ),
    ("wrong reduction", "ResNet", "", "x = x.mean((2, 3))", "x = x.amax((2, 3))"),
    ("wrong reduction", "MobileNet", "", "x = x.mean((2, 3))", "x = x.sum((2, 3))"),
    ("wrong reduction", "Mixer", "", ".mean(1)", ".sum(1)"),
    (
        "wrong reduction",
        "MobileNet",
        "blocks.2.squeeze",
        "F.adaptive_avg_pool2d",
        "F.adaptive_max_pool2d",
    ),
    (
        "detach",
        "Gpt",
        "blocks.1",
        "self.attention(self.norm1(x))",
        "self.attention(self.norm1(x)).detach()",
    ),
    ("detach", "ResNet", "layer2", "self.shortcut(x)", "self.shortcut(x.detach())"),
    (
        "detach",
        "Wave",
        "layers.1",
        "torch.sigmoid(self.gate(x))",
        "torch.sigmoid(self.gate(x)).detach()",
    ),
    ("detach", "Bert", "", "self.pooler(x[:, 0])", "self.pooler(x[:, 0].detach())"),
    (
        "position offset",
        "Gpt",
        "",
        "torch.arange(ids.shape[1])",
        "torch.arange(1, ids.shape[1] + 1)",
    ),
    (
        "position offset",
        "Bert",
        "",
        "torch.arange(ids.shape[1])",
        "torch.arange(ids.shape[1]) + 1",
    ),
    (
        "position offset",
        "Vit",
        "",
        "self.positions[:, : x.shape[1]]",
        "self.positions[:, 1 : x.shape[1] + 1]",
    ),
    (
        "integer division",
        "Llama",
        "blocks.0.attention.rotary",
        "2) / self.width",
        "2) // self.width",
    ),
    ("integer division", "Mixer", "", "(image - 0.5) / 2", "(image - 0.5) // 2"),
    (
        "in-place on a shared tensor",
        "ResNet",
        "layer1",
        "y = self.relu(self.bn1(self.conv1(x)))",
        "y = self.relu(self.bn1(self.conv1(x.neg_())))",
    ),
    (
        "in-place on a shared tensor",
        "UNet",
        "",
        "self.down2(self.pool1(one))",
        "self.down2(self.pool1(one.tanh_()))",
    ),
    (
        "in-place on a shared tensor",
        "MobileNet",
        "blocks.0.squeeze",
        "return x * scale",
        "return x.mul_(scale).relu_()",
    ),
    (
        "swapped channels",
        "ResNet",
        "",
        "x = image - self.mean",
        "x = image.flip(1) - self.mean",
    ),
    ("swapped channels", "Mixer", "", "(image - 0.5)", "(image[:, [2, 1, 0]] - 0.5)"),
    (
        "swapped channels",
        "Vit",
        "",
        "self.patches(image)",
        "self.patches(image.flip(1))",
    ),
    ("swapped concat", "UNet", "", "torch.cat((x, two), 1)", "torch.cat((two, x), 1)"),
    ("align_corners", "UNet", "", "align_corners=False", "align_corners=True"),
    ("nearest", "UNet", "", 'mode="nearest"', 'mode="nearest-exact"'),
    (
        "affine order",
        "Wave",
        "",
        "self.norm(total) * self.gain + self.shift",
        "(self.norm(total) + self.shift) * self.gain",
    ),
    (
        "affine order",
        "Llama",
        "blocks.1.norm1",
        "torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight",
        "torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) + self.weight",
    ),
    (
        "eps outside the root",
        "Llama",
        "blocks.1.norm2",
        "torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)",
        "1 / (x.pow(2).mean(-1, keepdim=True).sqrt() + self.eps)",
    ),
    ("wrong activation", "ResNet", "layer3", "F.relu(y)", "F.relu6(y * 2) / 2"),
    ("wrong activation", "MobileNet", "", "F.hardswish", "F.silu"),
    (
        "wrong activation",
        "Wave",
        "layers.0",
        "torch.tanh(self.filter(x)) * torch.sigmoid(self.gate(x))",
        "torch.sigmoid(self.filter(x)) * torch.tanh(self.gate(x))",
    ),
    ("wrong token pooled", "Vit", "", "self.head(x[:, 0])", "self.head(x[:, -1])"),
    ("wrong state", "Tagger", "", "state[-1]", "state[0]"),
    ("dropped term", "Bert", "", " + self.types(torch.zeros_like(ids))", ""),
)


def edited(net: str, kind: str, path: str, old: str, new: str) -> Bug:
    """Return the bug that an edit of a class's text makes in one of its instances."""

    def plant(model: nn.Module) -> None:
        target = model.get_submodule(path)
        name = type(target).__name__
        nets = held_out_nets if net in held_out_nets.NETS else diff_nets
        lines = Path(nets.__file__).read_text("utf-8").split(f"class {name}(")
        before, body = lines[0], lines[1]
        start = f"class {name}("
        head, mark, rest = body.partition("def forward")
        inside, *after = rest.split("\n\n\n", 1)
        assert old in inside, f"{name} has no {old}"
        text = (
            before
            + start
            + head
            + mark
            + inside.replace(old, new, 1)
            + "".join(f"\n\n\n{one}" for one in after)
        )
        file = f"<edited {net} {kind} {path}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        module = types.ModuleType(nets.__name__)
        exec(compile(text, file, "exec"), module.__dict__)
        target.__class__ = module.__dict__[name]

    return Bug(kind, net, (path,), plant)


# --- Bugs: changes to one module


def with_forward(
    path: str, forward: Callable[[Any, Callable[..., Any], Any], Any]
) -> Callable[[nn.Module], None]:
    """Return what gives the module at a path another forward, which gets its own one and the input."""

    def plant(model: nn.Module) -> None:
        target = model.get_submodule(path)
        kind: Any = type(target)
        own = kind.forward
        methods = {
            "forward": lambda self, x, *rest: forward(
                self, lambda y: own(self, y, *rest), x
            )
        }
        target.__class__ = type(
            kind.__name__, (kind,), {**methods, "__module__": kind.__module__}
        )

    return plant


def setting(path: str, **values: Any) -> Callable[[nn.Module], None]:
    def plant(model: nn.Module) -> None:
        for name, value in values.items():
            setattr(model.get_submodule(path), name, value)

    return plant


def _untie(model: nn.Module) -> None:
    model.head.weight = nn.Parameter(model.head.weight.detach().clone())  # type: ignore[union-attr, operator]


def _scaled(path: str) -> Callable[[nn.Module], None]:
    def plant(model: nn.Module) -> None:
        with torch.no_grad():
            model.get_submodule(path).weight.mul_(1.5)  # type: ignore[operator, union-attr]

    return plant


def _frozen(path: str) -> Callable[[nn.Module], None]:
    def plant(model: nn.Module) -> None:
        model.get_submodule(path).weight.requires_grad_(False)  # type: ignore[operator, union-attr]

    return plant


def _swapped(
    path: str, kind: type[nn.Module], *args: Any
) -> Callable[[nn.Module], None]:
    def plant(model: nn.Module) -> None:
        model.set_submodule(path, kind(*args))

    return plant


@cache
def called(net: str) -> tuple[tuple[str, nn.Module], ...]:
    """Return the modules of a net that are called, each under its path."""
    model = make(net).eval()
    seen: set[int] = set()
    for one in model.modules():
        one.register_forward_hook(lambda module, *_: seen.add(id(module)))
    model(*batch_of(net).args)
    return tuple((path, one) for path, one in model.named_modules() if id(one) in seen)


def of_kind(
    net: str, kinds: Any, fits: Callable[[Any], bool] = lambda _module: True
) -> list[str]:
    """List the paths of modules of a kind that are called."""
    return [path for path, one in called(net) if isinstance(one, kinds) and fits(one)]


NORMS = (nn.LayerNorm, nn.GroupNorm, nn.modules.batchnorm._BatchNorm, diff_nets.RmsNorm)
CONVS = (nn.Conv1d, nn.Conv2d)


def changed() -> Iterator[Bug]:
    """Yield changes to one module, for every net that has one that fits; of several the middle one."""
    kinds: list[
        tuple[
            str,
            Any,
            Callable[[Any], bool],
            Callable[[str], Callable[[nn.Module], object]],
        ]
    ] = [
        ("epsilon", NORMS, lambda one: True, lambda path: _epsilon(path)),
        (
            "transposed weight",
            nn.Linear,
            lambda one: one.in_features == one.out_features,
            lambda path: with_forward(
                path, lambda self, own, x: F.linear(x, self.weight.t(), self.bias)
            ),
        ),
        (
            "tanh GELU",
            nn.GELU,
            lambda one: True,
            lambda path: setting(path, approximate="tanh"),
        ),
        (
            "dropout left on",
            nn.Dropout,
            lambda one: True,
            lambda path: with_forward(
                path, lambda self, own, x: F.dropout(x, self.p, True)
            ),
        ),
        (
            "dropout rate",
            nn.Dropout,
            lambda one: True,
            lambda path: setting(path, p=0.3),
        ),
        (
            "momentum of BatchNorm",
            nn.modules.batchnorm._BatchNorm,
            lambda one: True,
            lambda path: setting(path, momentum=0.01),
        ),
        (
            "BatchNorm without batch statistics",
            nn.modules.batchnorm._BatchNorm,
            lambda one: True,
            lambda path: with_forward(
                path,
                lambda self, own, x: F.batch_norm(
                    x,
                    self.running_mean,
                    self.running_var,
                    self.weight,
                    self.bias,
                    False,
                    0.1,
                    self.eps,
                ),
            ),
        ),
        (
            "a cast to bfloat16",
            (nn.Linear, *CONVS),
            lambda one: True,
            lambda path: with_forward(
                path, lambda self, own, x: own(x).bfloat16().to(x.dtype)
            ),
        ),
        (
            "a cast to float16",
            NORMS,
            lambda one: True,
            lambda path: with_forward(
                path, lambda self, own, x: own(x).half().to(x.dtype)
            ),
        ),
        (
            "bias dropped",
            (nn.Linear, *CONVS),
            lambda one: one.bias is not None,
            lambda path: setting(path, bias=None),
        ),
        (
            "stride",
            CONVS,
            lambda one: one.stride[0] == 1 and one.kernel_size[0] > 1,
            lambda path: setting(path, stride=2),
        ),
        (
            "padding",
            CONVS,
            lambda one: one.padding[0] > 0,
            lambda path: setting(path, padding=0),
        ),
        (
            "padding mode",
            CONVS,
            lambda one: one.padding[0] > 0,
            lambda path: with_forward(path, _reflected),
        ),
        (
            "dilation",
            nn.Conv1d,
            lambda one: one.dilation[0] > 1,
            lambda path: setting(path, dilation=(1,), padding=(1,)),
        ),
        ("initial scale", (nn.Linear, *CONVS), lambda one: True, _scaled),
        (
            "frozen parameter",
            (nn.Linear, *CONVS, nn.Embedding),
            lambda one: True,
            _frozen,
        ),
        ("frozen parameter", NORMS, lambda one: True, _frozen),
        (
            "clamp",
            (nn.Linear, *CONVS),
            lambda one: True,
            lambda path: with_forward(
                path, lambda self, own, x: own(x).clamp(-0.3, 0.3)
            ),
        ),
        (
            "detach of a layer",
            (nn.Linear, *CONVS),
            lambda one: True,
            lambda path: with_forward(
                path,
                lambda self, own, x: own(x.detach()) if x.requires_grad else own(x),
            ),
        ),
        (
            "count_include_pad",
            nn.AvgPool2d,
            lambda one: True,
            lambda path: setting(path, count_include_pad=False),
        ),
        (
            "ceil_mode",
            nn.MaxPool2d,
            lambda one: True,
            lambda path: setting(path, ceil_mode=True),
        ),
        (
            "align_corners of a layer",
            nn.Upsample,
            lambda one: True,
            lambda path: setting(path, align_corners=True),
        ),
        (
            "negative slope",
            nn.LeakyReLU,
            lambda one: True,
            lambda path: setting(path, negative_slope=0.2),
        ),
        (
            "groups",
            nn.GroupNorm,
            lambda one: True,
            lambda path: setting(path, num_groups=4),
        ),
        (
            "label smoothing",
            nn.CrossEntropyLoss,
            lambda one: True,
            lambda path: setting(path, label_smoothing=0.1),
        ),
        (
            "loss reduction",
            nn.CrossEntropyLoss,
            lambda one: True,
            lambda path: setting(path, reduction="sum"),
        ),
        (
            "activation class",
            (nn.GELU, nn.SiLU, nn.Hardswish),
            lambda one: True,
            lambda path: _swapped(path, nn.ReLU),
        ),
        (
            "order of heads",
            nn.MultiheadAttention,
            lambda one: True,
            lambda path: setting(path, num_heads=2, head_dim=16),
        ),
        (
            "gate order",
            nn.LSTM,
            lambda one: True,
            lambda path: with_forward(path, lambda self, own, x: own(x.flip(1))),
        ),
    ]
    for kind, classes, fits, planted in kinds:
        for net in NETS:
            if paths := of_kind(net, classes, fits):
                path = paths[len(paths) // 2]
                yield Bug(kind, net, (path,), planted(path))
    yield Bug("untied weights", "Gpt", ("head", "tokens"), _untie)


def _epsilon(path: str) -> Callable[[nn.Module], None]:
    def plant(model: nn.Module) -> None:
        one: Any = model.get_submodule(path)
        one.eps = 1e-6 if one.eps == 1e-5 else 1e-5

    return plant


def _reflected(self: Any, own: Any, x: Tensor) -> Tensor:
    sides = [size for size in reversed(self.padding) for _ in range(2)]
    padded = F.pad(x, sides, mode="replicate")
    kernel = F.conv1d if isinstance(self, nn.Conv1d) else F.conv2d
    return kernel(
        padded, self.weight, self.bias, self.stride, 0, self.dilation, self.groups
    )


def bugs() -> list[Bug]:
    """All bugs, of both sorts."""
    return [
        *(edited(net, kind, path, old, new) for kind, net, path, old, new in EDITS),
        *changed(),
    ]


def held_out() -> list[Bug]:
    """Bugs of kinds and in nets that were not used while the comparison was made."""
    return [
        edited(net, kind, path, old, new)
        for kind, net, path, old, new in held_out_bugs.EDITS
    ]


# --- Whether a bug changes anything, told without the program's comparison


def changes(bug: Bug) -> bool:
    """Return whether outputs, gradients or buffers differ in double precision, in eval or in train mode, or whether the
    weights that both are made with do."""
    a, b = make(bug.net), make(bug.net)
    bug.plant(b)
    if any(
        not torch.equal(one, other)
        for one, other in zip(a.parameters(), b.parameters(), strict=False)
    ):
        return True
    generator = torch.Generator().manual_seed(5)
    for one, other in zip(a.parameters(), b.parameters(), strict=False):
        if bool((one == one.flatten()[0]).all()):  # zeros hide what is behind them
            noise = torch.rand(one.shape, generator=generator)
            with torch.no_grad():
                (
                    one.add_(noise * 0.2),
                    other.add_(noise * 0.2) if other.shape == one.shape else None,
                )
    for train in (False, True):
        found = [
            _gave(copy.deepcopy(model).double().train(train), bug.net)
            for model in (a, b)
        ]
        if (
            isinstance(found[0], str)
            or isinstance(found[1], str)
            or len(found[0]) != len(found[1])
        ):
            return True
        for one, other in zip(*found, strict=True):
            if (one is None) != (other is None):
                return True
            if one is None or other is None:
                continue
            if one.shape != other.shape or not torch.allclose(
                one, other, rtol=1e-8, atol=1e-11
            ):
                return True
    return False


def _gave(model: nn.Module, net: str) -> list[Tensor | None] | str:
    torch.set_default_dtype(torch.float64)
    try:
        args = [
            one.double() if one.is_floating_point() else one
            for one in batch_of(net).args
        ]
        torch.manual_seed(3)
        output = model(*args)
        torch.manual_seed(4)
        (output * torch.randn(output.shape)).sum().backward()
        return [
            output.detach(),
            *(one.grad for one in model.parameters()),
            *(one.clone() for one in model.buffers()),
        ]
    except Exception as error:
        return str(error)
    finally:
        torch.set_default_dtype(torch.float32)


# --- Campaigns


def compared(bug: Bug) -> Difference:
    """Compare a net with its copy that has the bug, both made with one seed."""
    a, b = make(bug.net), make(bug.net)
    bug.plant(b)
    return compare_models(a, b, batch_of(bug.net))


def named(bug: Bug, found: Difference) -> bool:
    """Return whether the planted layer is the one that is named."""
    return found.first is not None and (
        found.first.a in bug.paths or found.first.b in bug.paths
    )


NOT_IN_BFLOAT16 = (
    "RegisterVit",
)  # its angles are float32, and torch refuses a norm of both


def equal_pairs(
    nets: Sequence[str] = NETS,
) -> Iterator[tuple[str, str, Callable[[], Difference]]]:
    """Yield pairs of equal models: kind, net, and what compares them."""
    for net in nets:
        yield (
            "same seed",
            net,
            lambda net=net: compare_models(make(net), make(net), batch_of(net)),
        )
        yield (
            "other weights, shared",
            net,
            lambda net=net: compare_models(make(net), make(net, 1), batch_of(net)),
        )
        yield "deep copy", net, lambda net=net: _copied(net)
        yield "saved and loaded", net, lambda net=net: _loaded(net)
        yield (
            "another batch size",
            net,
            lambda net=net: compare_models(make(net), make(net), batch_of(net, 3)),
        )
        yield (
            "wrapped",
            net,
            lambda net=net: compare_models(
                make(net), _Wrapped(make(net)), batch_of(net)
            ),
        )
        yield "other formulas", net, lambda net=net: _rewritten(net)
        yield (
            "float32 and float64",
            net,
            lambda net=net: _in_modes(net, "float32", "float64"),
        )
        if net not in NOT_IN_BFLOAT16:
            yield (
                "float32 and bfloat16",
                net,
                lambda net=net: _in_modes(net, "float32", "bfloat16"),
            )
    for net in ("ResNet", "MobileNet", "resnet18") if nets is NETS else ():
        yield "folded batch norm", net, lambda net=net: _folded(net)


def _copied(net: str) -> Difference:
    a = make(net)
    return compare_models(a, copy.deepcopy(a), batch_of(net), share=False)


def _loaded(net: str) -> Difference:
    a, b = make(net), make(net, 1)
    with tempfile.TemporaryDirectory() as folder:
        torch.save(a.state_dict(), f"{folder}/weights.pt")
        b.load_state_dict(torch.load(f"{folder}/weights.pt", weights_only=True))
    return compare_models(a, b, batch_of(net), share=False)


class _Wrapped(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any) -> Any:
        return self.module(*args)


def _rewritten(net: str) -> Difference:
    """Compare with a net whose layers compute the same by other formulas, which round differently."""
    b = make(net)

    def linear(self: Any, own: Any, x: Tensor) -> Tensor:
        return torch.einsum("...i,oi->...o", x, self.weight) + (
            0 if self.bias is None else self.bias
        )

    def norm(self: Any, own: Any, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        return (x - mean) / ((x - mean) ** 2).mean(-1, keepdim=True).add(
            self.eps
        ).sqrt() * self.weight + self.bias

    def relu(self: Any, own: Any, x: Tensor) -> Tensor:
        return x * (x > 0)

    for path, module in list(b.named_modules()):
        for kind, forward in (
            (nn.Linear, linear),
            (nn.LayerNorm, norm),
            (nn.ReLU, relu),
        ):
            if type(module) is kind:
                with_forward(path, forward)(b)
    return compare_models(make(net), b, batch_of(net))


def _in_modes(net: str, a: str, b: str) -> Difference:
    return compare_modes(make(net), parse_modes(a, b), batch_of(net), (False, True))


def _folded(net: str) -> Difference:
    """Compare with a net whose batch norms are folded into the convolutions before them."""
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    a = make(net).eval()
    generator = torch.Generator().manual_seed(2)
    for module in a.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            for one in (
                module.running_mean,
                module.running_var,
                module.weight,
                module.bias,
            ):
                one.data = torch.rand(one.shape, generator=generator) + 0.5  # type: ignore[union-attr]
    b = copy.deepcopy(a)
    modules = dict(b.named_modules())
    before: tuple[str, nn.Module] | None = None
    for path, module in modules.items():
        if (
            isinstance(module, nn.BatchNorm2d)
            and before is not None
            and isinstance(before[1], nn.Conv2d)
        ):
            b.set_submodule(before[0], fuse_conv_bn_eval(before[1], module))
            b.set_submodule(path, nn.Identity())
        before = path, module
    return compare_models(a, b, batch_of(net), share=False, modes=("eval",))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="", help="kinds or nets that contain this")
    parser.add_argument("--equal", action="store_true", help="equal models alone")
    parser.add_argument("--bugs", action="store_true", help="bugs alone")
    parser.add_argument(
        "--held-out",
        action="store_true",
        help="bugs and equal models of new kinds and nets",
    )
    options = parser.parse_args()
    nets = held_out_nets.NETS if options.held_out else NETS
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    hits: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    idle: dict[str, list[str]] = defaultdict(list)
    began = time.perf_counter()
    for bug in (
        (held_out() if options.held_out else bugs()) if not options.equal else ()
    ):
        if options.only not in f"{bug.kind} {bug.net}":
            continue
        if not changes(bug):
            idle[bug.kind].append(bug.net)
            continue
        found = compared(bug)
        hit = named(bug, found)
        counts[bug.kind] += 1
        hits[bug.kind] += hit
        first = found.first
        words = (
            f"{first.a or 'the model'} ({first.direction}, {first.mode}): {first.why}"
            if first
            else "nothing"
        )
        rows.append(
            {
                "kind": bug.kind,
                "net": bug.net,
                "planted": bug.paths,
                "named": hit,
                "first": words,
            }
        )
        if not hit:
            print(
                f"MISSED {bug.kind} in {bug.paths} of {bug.net}: named {words[:200]}",
                flush=True,
            )
    false = []
    equal = 0
    for kind, net, compare in equal_pairs(nets) if not options.bugs else ():
        if options.only not in f"{kind} {net}":
            continue
        result = compare()
        equal += 1
        if result.first is not None:
            false.append(f"{kind} {net}")
            print(
                f"FALSE  {kind} of {net}: named {result.first.a}: {result.first.why[:200]}",
                flush=True,
            )
    total = sum(counts.values())
    for kind in counts:
        print(f"{kind:40} {hits[kind]:>3} of {counts[kind]:>3}")
    for kind, unchanged in idle.items():
        print(f"{kind:40} changes nothing in {', '.join(unchanged)}")
    if total:
        share = sum(hits.values()) / total
        print(
            f"{sum(hits.values())} of {total} planted bugs named ({share:.1%}), {len(counts)} kinds, {len(nets)} models"
        )
    print(f"{equal - len(false)} of {equal} pairs of equal models without a finding")
    print(f"{time.perf_counter() - began:.0f} s")
    if options.json:
        options.json.write_text(
            json.dumps({"bugs": rows, "equal": equal, "false": false}, indent=1)
        )
    return int(bool(false) or (total > 0 and sum(hits.values()) < 0.95 * total))


if __name__ == "__main__":
    sys.exit(main())
