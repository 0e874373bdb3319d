"""Attention maps of each kind of attention equal those of a hand-written softmax."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from app.features.interpret.compute import attention_maps
from app.features.interpret.compute.attention_maps import attentions
from tests.features.interpret.models import OWN, softmax_maps


def maps_of(model, *inputs, **named):
    """The attentions of a model in eval mode, with maps."""
    model.eval()
    found, remarks = attentions(model, lambda: model(*inputs, **named), len(inputs[0]))
    assert not remarks
    return found


@pytest.mark.parametrize("kind", OWN)
def test_maps_are_those_of_a_softmax_written_by_hand(kind):
    torch.manual_seed(0)
    model, x = OWN[kind](), torch.randn(3, 7, 24)
    (found,) = maps_of(model, x)
    assert found.checked and found.error < 1e-5 and not found.remark
    assert (found.groups, found.heads, found.queries, found.keys) == (1, 4, 7, 7)
    torch.testing.assert_close(
        torch.tensor(found.maps[0]), model.expected(x)[0], atol=1e-5, rtol=0
    )
    assert found.entropy == pytest.approx(
        torch.special.entr(model.expected(x)[0]).sum(-1).mean(-1).tolist(), abs=1e-4
    )


def test_every_layer_of_an_encoder_and_decoder_is_found_with_its_module():
    """Their fused inference and the call inside nn.MultiheadAttention hide weights from hooks and function modes."""
    torch.manual_seed(0)
    model = nn.Transformer(16, 2, 2, 2, 32, batch_first=True)
    source, target = torch.randn(2, 5, 16), torch.randn(2, 3, 16)
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    expected: list[torch.Tensor] = []

    def noted(module, args, kwargs):
        with torch.no_grad():
            call = F.multi_head_attention_forward
            q, k, v = (one.transpose(0, 1) for one in args)
            mask = kwargs.get("attn_mask")
            mask = mask.float() if mask is not None else None
            _, weights = call(
                q,
                k,
                v,
                16,
                2,
                module.in_proj_weight,
                module.in_proj_bias,
                None,
                None,
                False,
                0.0,
                module.out_proj.weight,
                module.out_proj.bias,
                False,
                attn_mask=mask,
                average_attn_weights=False,
            )
            expected.append(weights)

    found = maps_of(model, source, target, tgt_mask=mask)
    hooks = [
        m.register_forward_pre_hook(noted, with_kwargs=True)
        for m in model.modules()
        if isinstance(m, nn.MultiheadAttention)
    ]
    with torch.no_grad():
        model(source, target, tgt_mask=mask)
    assert len(hooks) == len(expected) == 6
    assert [one.path for one in found] == [
        "encoder.layers.0.self_attn",
        "encoder.layers.1.self_attn",
        "decoder.layers.0.self_attn",
        "decoder.layers.0.multihead_attn",
        "decoder.layers.1.self_attn",
        "decoder.layers.1.multihead_attn",
    ]
    for one, weights in zip(found, expected, strict=True):
        assert one.checked
        torch.testing.assert_close(
            torch.tensor(one.maps[0]), weights[0], atol=1e-5, rtol=0
        )


def test_windows_of_a_swin_are_groups():
    from app.util.torchvision_import import import_torchvision

    swin = import_torchvision("models").swin_transformer
    torch.manual_seed(0)
    model = swin.SwinTransformer([4, 4], 12, [2], [3], [4, 4], num_classes=4)
    found = maps_of(model, torch.randn(2, 3, 32, 32))
    assert [(one.groups, one.heads, one.queries, one.kind) for one in found] == [
        (4, 3, 16, "softmax")
    ] * 2
    assert all(one.checked for one in found) and found[0].maps.shape == (4, 3, 16, 16)


def test_a_gate_and_a_head_of_classes_are_no_attention():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.body, self.head = (
                nn.Linear(6, 4),
                nn.Linear(6, 20),
                nn.Linear(5, 3),
            )

        def forward(self, x):
            parts = self.body(x).unflatten(-1, (4, 5))
            return self.head(
                (self.gate(x).softmax(-1).unsqueeze(1) @ parts).squeeze(1)
            ).softmax(-1)

    assert maps_of(Gated(), torch.randn(2, 6)) == ()


def test_weights_that_do_not_explain_the_output_are_said_to():
    class Dropping(nn.Module):
        def forward(self, x):
            return F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)

    (found,) = maps_of(Dropping(), torch.randn(2, 2, 9, 4))
    assert not found.checked and "dropout of 0.5" in found.remark


def test_large_maps_are_pooled_and_computed_in_parts(monkeypatch):
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 50, 8) for _ in range(3))

    class Large(nn.Module):
        def forward(self, q, k, v):
            return F.scaled_dot_product_attention(q, k, v)

    monkeypatch.setattr(attention_maps, "LARGEST", 4 * 2 * 17 * 17)
    monkeypatch.setattr(
        "app.features.interpret.compute.attention.CHUNK", 8 * 50 * 2 * 7
    )
    (found,) = maps_of(Large(), q, k, v)
    whole = F.pad(softmax_maps(q, k)[0], (0, 1)).reshape(2, 50, 17, 3).sum(-1)
    expected = torch.stack([part.mean(1) for part in whole.split(3, 1)], 1)
    assert found.pooled == 3 and found.checked
    torch.testing.assert_close(torch.tensor(found.maps[0]), expected, atol=1e-5, rtol=0)


def test_rows_that_may_look_at_nothing_are_zero():
    class Masked(nn.Module):
        def forward(self, x):
            mask = torch.zeros(4, 4, dtype=torch.bool)
            mask[1:] = True
            return F.scaled_dot_product_attention(x, x, x, mask)

    (found,) = maps_of(Masked(), torch.randn(1, 1, 4, 4))
    assert (
        found.checked
        and (found.maps[0, 0, 0] == 0).all()
        and math.isclose(found.maps[0, 0, 1].sum(), 1, abs_tol=1e-5)
    )
