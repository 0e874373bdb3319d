"""Muted and patched losses are those of hooks written by hand, bit for bit."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from app.features.interpret import task as reading
from app.features.interpret.values import (
    InterpretError,
    Intervention,
    MeasureEffect,
    ReadAttention,
    Samples,
    parse_part,
)
from app.training.evaluation.evaluator import Evaluator
from tests.support.training_jobs import CONV_NET, job, net

TOKENS = net(
    [
        "self.embed = nn.Linear(8, 24)",
        "self.q = nn.Linear(24, 24)",
        "self.kv = nn.Linear(24, 24)",
        "self.proj = nn.Linear(24, 24)",
        "self.attn = nn.MultiheadAttention(24, 3, batch_first=True)",
        "self.head = nn.Linear(24, 10)",
    ],
    [
        "x = self.embed(x.squeeze(1))",
        "q = self.q(x).unflatten(-1, (4, 6)).transpose(1, 2)",
        "k, v = self.kv(x).unflatten(-1, (2, 2, 6)).permute(2, 0, 3, 1, 4)",
        "y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)",
        "x = x + self.proj(y.transpose(1, 2).flatten(2))",
        "x = x + self.attn(x, x, x, need_weights=False)[0]",
        "return self.head(x.mean(1))",
    ],
)
NUMBERS = (3, 5, 8, 11)


@pytest.fixture(scope="module")
def tokens() -> Evaluator:
    return Evaluator(job(TOKENS))


@pytest.fixture(scope="module")
def pictures() -> Evaluator:
    return Evaluator(job(CONV_NET))


def effect(evaluator, *changes, numbers=NUMBERS):
    return reading.effect(evaluator, MeasureEffect(None, changes, Samples(numbers)))


@torch.no_grad()
def loss_with(evaluator, hooks, numbers=NUMBERS):
    """The loss of the samples with plain hooks: pairs of a module's path, and a forward hook or a pre-hook."""
    model = evaluator.stepper.model.eval()
    handles = []
    for path, kind, hook in hooks:
        handles.append(
            getattr(model.get_submodule(path), f"register_forward_{kind}")(hook)
        )
    inputs, labels = evaluator.read("validation", numbers)
    loss = F.cross_entropy(model(inputs), labels).item()
    for one in handles:
        one.remove()
    return loss


def zeroed(*index):
    def hook(_module, _args, output):
        output = output.clone()
        output[index] = 0
        return output

    return hook


def test_a_muted_layer_and_a_muted_channel(pictures):
    plain = loss_with(pictures, [])
    found = effect(pictures, Intervention("conv2"))
    assert (
        found.before == plain
        and found.after
        == loss_with(pictures, [("conv2", "hook", zeroed(...))])
        != plain
    )
    assert (
        found.change == found.after - found.before
        and found.measure == "CrossEntropyLoss"
    )
    found = effect(
        pictures, parse_part("norm1:channel=4"), parse_part("conv2:channel=30")
    )
    hooks = [
        ("norm1", "hook", zeroed(slice(None), 4)),
        ("conv2", "hook", zeroed(slice(None), 30)),
    ]
    assert found.after == loss_with(pictures, hooks) and "axis 1" in found.remarks[0]
    assert (
        sum(found.each_after) / 4 == pytest.approx(found.after)
        and len(found.predictions) == 4
    )


def test_a_muted_head_of_fused_attention(tokens):
    def hook(_module, args):
        (x,) = args
        x = x.clone()
        x[..., 12:18] = 0
        return (x,)

    assert (
        reading.attention(tokens, ReadAttention(None)).attentions[0].path == ""
    )  # the call is the model's own
    found = effect(tokens, Intervention("", 1, head=2))
    assert found.before == loss_with(tokens, [])
    assert (
        found.after == loss_with(tokens, [("proj", "pre_hook", hook)]) != found.before
    )


def test_a_muted_head_of_multihead_attention(tokens):
    """Its output projection is no module that is called: by hand, its columns are zero."""
    found = effect(tokens, Intervention("attn", head=1))
    weight = tokens.stepper.model.attn.out_proj.weight
    kept = weight.detach().clone()
    with torch.no_grad():
        weight[:, 8:16] = 0
        by_hand = loss_with(tokens, [])
        weight.copy_(kept)
    assert found.after == by_hand != found.before


def test_an_activation_of_another_sample(pictures):
    held = []
    with torch.no_grad():
        other, _ = pictures.read("validation", (20, 20, 20, 20))
        handle = pictures.stepper.model.conv1.register_forward_hook(
            lambda _m, _a, output: held.append(output)
        )
        pictures.stepper.model.eval()(other)
        handle.remove()
    found = effect(pictures, Intervention("conv1", source=20))
    assert (
        found.after
        == loss_with(pictures, [("conv1", "hook", lambda *_: held[0])])
        != found.before
    )

    def one_channel(_module, _args, output):
        output = output.clone()
        output[:, 7] = held[0][:, 7]
        return output

    assert effect(
        pictures, Intervention("conv1", channel=7, source=20)
    ).after == loss_with(pictures, [("conv1", "hook", one_channel)])


def test_a_head_of_another_sample(tokens):
    held = []

    def note(_module, args):
        held.append(args[0])

    def patch(_module, args):
        x = args[0].clone()
        x[..., :6] = held[0][..., :6]
        return (x,)

    inputs, _ = tokens.read("validation", (9,) * 4)
    handle = tokens.stepper.model.proj.register_forward_pre_hook(note)
    with torch.no_grad():
        tokens.stepper.model.eval()(inputs)
    handle.remove()
    found = effect(tokens, Intervention("", 1, head=0, source=9))
    assert (
        found.after == loss_with(tokens, [("proj", "pre_hook", patch)]) != found.before
    )


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("conv3", "no module conv3; near it are conv"),
        ("conv1:channel=16", "16 channels along axis 1"),
        ("conv1:head=0", "computes no attention"),
        ("conv1#2", "makes no such call"),
    ],
)
def test_what_is_not_there_is_said(pictures, part, words):
    with pytest.raises(InterpretError, match=words):
        effect(pictures, parse_part(part))


def test_a_head_beyond_the_last_is_said(tokens):
    with pytest.raises(InterpretError, match="has 3 heads"):
        effect(tokens, Intervention("attn", head=3))


def test_a_failed_change_leaves_the_net_as_it_was(pictures):
    plain = loss_with(pictures, [])
    with pytest.raises(InterpretError):
        effect(pictures, Intervention("conv2"), Intervention("conv1", 5))
    assert loss_with(pictures, []) == plain
