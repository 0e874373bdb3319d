"""The range of an input: what random samples keep to, and what tables must have rows for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from app.builder.analysis import analyse
from app.builder.catalog.catalog import catalog
from app.builder.diagnostics.problems import apply_cure
from app.builder.graph import Graph
from app.builder.literals import DType
from app.project import file
from app.project.project import Project
from app.source.compiled import random_inputs
from tests.support.builder_nets import INT64, net


def tokens(op: str = "nn.Embedding", **given: Any) -> Graph:
    return net(
        [
            ("input", "tokens", {"shape": (7,), "dtype": INT64, **given}),
            ("torch.flip", "flip", {}),
            (op, "table", {}),
            ("output", "y", {}),
        ]
    )


@pytest.mark.parametrize(
    ("op", "rows"),
    [("nn.Embedding", 1000), ("nn.EmbeddingBag", 1000), ("F.one_hot", 10)],
)
def test_a_table_with_too_few_rows_is_an_error_with_two_ways_out(
    op: str, rows: int
) -> None:
    graph = tokens(op, low=0, high=5000)
    (problem,) = analyse(graph).errors
    assert (
        problem.message == f"tokens has values up to 4999, table has {rows:,} rows"
        and problem.node == "table"
    )
    assert len(problem.cures) == 2
    for cure in problem.cures:
        assert not analyse(apply_cure(graph, catalog(), cure)).errors


def test_a_range_below_zero_has_no_rows() -> None:
    graph = tokens(low=-1, high=10)
    (problem,) = analyse(graph).errors
    assert "no rows below 0" in problem.message
    assert not analyse(apply_cure(graph, catalog(), problem.cures[0])).errors


def test_a_range_that_fits_and_none_at_all_are_fine() -> None:
    assert not analyse(tokens(low=0, high=1000)).errors and not analyse(tokens()).errors


def test_values_that_were_computed_are_nobodys_range() -> None:
    graph = net(
        [
            ("input", "tokens", {"shape": (7,), "dtype": INT64, "high": 5000}),
            ("operator.mod", "m", {"other": 10}),
            ("nn.Embedding", "table", {}),
            ("output", "y", {}),
        ]
    )
    assert not analyse(graph).errors


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"low": 3, "high": 3}, "low=3 is not below high=3"),
        ({"low": 0.5}, "low and high of an integer dtype must be ints"),
    ],
)
def test_a_range_that_is_none_is_said(given: dict[str, Any], says: str) -> None:
    assert any(says in problem.message for problem in analyse(tokens(**given)).errors)


@pytest.mark.parametrize(
    ("dtype", "given", "least", "most"),
    [
        ("int64", {"low": 5, "high": 7}, 5, 6),
        ("int64", {}, 0, 1),
        ("int64", {"high": 3}, 0, 2),
        ("int32", {"low": -4}, -4, -3),
        ("float32", {"low": -1.0, "high": 1.0}, -1, 1),
        ("float64", {"low": 2}, 2, 99),
        ("float32", {"high": 0.0}, -99, 0),
        ("bool", {}, 0, 1),
        ("int64", {"high": -5}, -6, -6),
    ],
)
def test_random_samples_keep_to_the_range(
    dtype: str, given: dict[str, Any], least: float, most: float
) -> None:
    rows: Any = [
        ("input", "x", {"shape": (50,), "dtype": DType(dtype), **given}),
        ("output", "y", {}),
    ]
    graph = net(rows)
    analysis = analyse(graph)
    assert not analysis.errors
    (drawn,) = random_inputs(analysis.source, 20)
    assert drawn.shape == (20, 50) and str(drawn.dtype) == f"torch.{dtype}"
    assert drawn.min() >= least and drawn.max() <= most
    assert dtype.startswith("float") or torch.unique(drawn).numel() == most - least + 1
    project = Project(graph=graph)
    assert file.loads(file.dumps(project)) == project
