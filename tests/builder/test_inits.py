"""Initialisation of a layer's parameters: the table is torch's, and what cannot be is said before a run."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

from app.builder.analysis import analyse
from app.builder.catalog import init_checks, inits
from app.builder.catalog.catalog import catalog
from app.builder.graph import Init
from app.builder.params import ParamError
from app.source.compiled import make_module
from app.util.frozen import FrozenMap
from tests.builder.test_blocks import graph


def test_the_table_is_what_torch_has() -> None:
    there = {
        name for name in dir(nn.init) if name.endswith("_") and not name.startswith("_")
    }
    assert there == set(inits.FUNCTIONS)
    for name, params in inits.FUNCTIONS.items():
        signature = inspect.signature(getattr(nn.init, name)).parameters
        taken = {
            key: value.default
            for key, value in signature.items()
            if key not in ("tensor", "generator")
        }
        assert [param.name for param in params] == list(taken)
        assert all(
            param.required == (taken[param.name] is inspect.Parameter.empty)
            for param in params
        )
        assert all(
            param.required or param.default == taken[param.name] for param in params
        )


def net_with(parameter: str, init: Init):
    rows = [
        ("x", "input", {"shape": (3, 8, 8)}),
        (
            "conv",
            "nn.Conv2d",
            {"out_channels": 6, "kernel_size": 3},
            {"inits": FrozenMap({parameter: init})},
        ),
        ("y", "output", {}),
    ]
    return graph(rows, ["x>conv", "conv>y"])


@pytest.mark.parametrize("name", sorted(set(inits.FUNCTIONS) - {"eye_", "sparse_"}))
def test_every_function_runs_on_a_convolution(name: str) -> None:
    params = FrozenMap(
        {param.name: param.start for param in inits.FUNCTIONS[name] if param.required}
    )
    answer = analyse(net_with("weight", Init(name, params)))
    assert not answer.problems, answer.problems
    assert f"nn.init.{name}(self.conv.weight" in answer.source.text
    make_module(answer.source)


@pytest.mark.parametrize(
    ("parameter", "init", "words"),
    [
        ("bias", Init("kaiming_normal_"), "fewer than 2 dimensions"),
        (
            "weights",
            Init("zeros_"),
            "there is no parameter weights; there are weight, bias",
        ),
        ("weight", Init("eye_"), "2 dimensions"),
        ("weight", Init("dirac_", FrozenMap(groups=5)), "divisible"),
    ],
)
def test_what_cannot_be_initialised_so_is_said_in_torchs_words(
    parameter: str, init: Init, words: str
) -> None:
    before = torch.random.get_rng_state()
    (problem,) = analyse(net_with(parameter, init)).errors
    assert problem.node == "conv" and words in problem.message + problem.reason
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize(
    ("name", "init"),
    [
        ("weight); import os; (", Init("zeros_")),
        ("weight", Init("zeros_(x); os.system")),
        ("weight", Init("normal_", FrozenMap({"std); os.system('": 1.0}))),
        ("weight", Init("normal_", FrozenMap(std="1); os.system('"))),
        ("class", Init("zeros_")),
        ("0.weight", Init("zeros_")),
        ("weight", Init("constant_")),
    ],
)
def test_nothing_else_gets_into_the_source(name: str, init: Init) -> None:
    with pytest.raises(ParamError):
        inits.check_inits({name: init})


def test_parameters_by_name() -> None:
    spec = catalog()["nn.LSTM"]
    shapes = init_checks.parameter_shapes(spec, FrozenMap(input_size=3, hidden_size=5))
    assert shapes["weight_ih_l0"] == (20, 3) and len(shapes) == 4
    assert init_checks.parameter_shapes(catalog()["nn.ReLU"], FrozenMap()) == {}
