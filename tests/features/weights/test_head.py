"""Edits of the last layer as values."""

from __future__ import annotations

import pytest

from app.builder.catalog.catalog import catalog
from app.features.weights import feature as head_edits
from app.features.weights.feature import HeadError
from tests.project.test_start_weights import analysed, digits


def test_dropping_the_last_layer_leads_its_wires_on() -> None:
    project = digits()
    head = head_edits.last_layer(project, catalog())
    dropped = head_edits.drop_last(project, catalog())
    assert head.node not in dropped.graph.nodes
    assert (
        analysed(dropped).runnable
        and len(dropped.graph.edges) == len(project.graph.edges) - 1
    )
    assert head_edits.last_layer(dropped, catalog()) != head


@pytest.mark.parametrize("size", [0, -1, True, 10**9])
def test_a_size_that_no_layer_has_is_refused(size) -> None:
    with pytest.raises(HeadError, match="number of outputs"):
        head_edits.replace_last(digits(), catalog(), size)
