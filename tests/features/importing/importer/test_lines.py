"""Single lines of `forward`, imported and held against plain torch; `scripts/forward_lines.py` knows hundreds more."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts.forward_lines import EQUAL, OWN, REFUSED, text_of, verdict_of

LINES = (
    "y = torch.zeros(x.shape[0], 6, device=x.device, dtype=x.dtype) + h[:, 0]",
    "y = torch.ones(len(x), 6) + h.reshape(len(h), -1)[:, :6]",
    "y = h[torch.arange(x.size(0)), i[:, 0]]",
    "y = self.w[i, i] + self.b[i]",
    "y = h[..., [-2], :][:, [0], [1]]",
    "y = h[:, : np.int64(2)]",
    "y = h.clone();;y[torch.arange(x.size(0)), i[:, 0]] = 1.0",
    "y = h.where(h > 0, x) + torch.stack(h.unbind(1), 1)",
    "y = h.squeeze() + h.max() + (h > 0).any()",
    "y = h.clamp(min=x, max=x + 1) + torch.clamp_min(h, 0.1)",
    "y = h.clone();;y.copy_(x)",
    "y = torch.empty(x.size(0), 6).fill_(2.0) * h[:, 0]",
    "y = h.masked_fill(h < 0, torch.finfo(h.dtype).min)",
    "y = torch.tensor([x.size(1), x.size(2)], device=x.device) * h[..., :2] + torch.pow(2, h[..., :2])",
    "y = torch.cat([torch.tensor([], dtype=x.dtype, device=x.device), h], dim=-2)",
    "y = (i & (i + 1)) | ~i",
    "y = torch.embedding(self.w, i) + torch.pow(h.abs() + 1, x).mean() + h.masked_fill(h < 0, x.mean()).sum()",
    "y = torch.zeros_like(h).scatter_add_(1, i.unsqueeze(-1).expand_as(h), h)",
    "y = nn.GELU()(h.type(torch.float64)).type(x.dtype) @ torch.eye(6, 6)",
    "y = F.interpolate(q, size=q.shape[-1] * 2, mode='nearest')",
)


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is imported stays in the process that reads it."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.delitem(sys.modules, "net", raising=False)


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_forward_is_drawn_as_the_same_computation(
    line: str, tmp_path: Path
) -> None:
    found = verdict_of(line, tmp_path)
    assert found.kind == EQUAL, found.words


def test_a_line_that_hangs_on_the_data_is_one_node_of_its_own_class(
    tmp_path: Path,
) -> None:
    assert verdict_of("y = h[h > 0]", tmp_path).kind == OWN


def test_a_line_of_a_class_that_takes_any_inputs_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starred = "forward(self, *xs):\n        (x,) = xs"
    monkeypatch.setattr(
        "scripts.forward_lines.text_of",
        lambda line: text_of(line).replace("forward(self, x):", starred),
    )
    found = verdict_of("y = h[h > 0]", tmp_path)
    assert found.kind == REFUSED and "Net" in found.words and "*xs" in found.words
