"""Models called with names, as an import wants them: with positional tensors alone."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from app.features.importing.task import positional
from app.sources.loading import Loaded
from app.sources.spec import SourceError


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(2, 2)

    def forward(
        self, x: Tensor, y: Tensor | None = None, *, z: Tensor | None = None
    ) -> Tensor:
        return self.a(x) + 2 * (0 if y is None else y) + 3 * (0 if z is None else z)


@pytest.mark.parametrize(
    ("args", "kwargs", "itself"),
    [
        ("x", "", True),
        ("", "yx", True),
        ("x", "y", True),
        ("x", "z", False),
        ("", "zx", False),
    ],
)
def test_names_become_places_and_the_model_stays_itself_where_they_are_the_first(
    args: str, kwargs: str, itself: bool
) -> None:
    model = Net()
    values = {name: torch.randn(3, 2) for name in "xyz"}
    loaded = Loaded(
        model,
        tuple(values[name] for name in args),
        {name: values[name] for name in kwargs},
    )
    called, given = positional(loaded)
    assert (called is model) is itself
    assert torch.equal(called(*given), model(*loaded.args, **loaded.kwargs))
    if not itself:
        assert [*inspect.signature(called.forward).parameters] == [*args, *kwargs]
        assert [*called.state_dict()] == ["model.a.weight", "model.a.bias"]


def test_what_takes_more_than_tensors_is_refused() -> None:
    with pytest.raises(SourceError, match="other than tensors"):
        given: Any = ([torch.ones(2)],)
        positional(Loaded(Net(), given))
