"""Texts that name models and describe inputs."""

from __future__ import annotations

import pytest

from app.sources.spec import SourceNameError, parse_input, parse_source


@pytest.mark.parametrize(
    "text",
    [
        "",
        "net",
        "net.py",
        ":Net",
        "net.py:",
        "a b:Net",
        "net.py:1x",
        "os;system:x",
        "hf:",
    ],
)
def test_a_text_that_names_no_model_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(
        SourceNameError, match=r"does not name a model; write package\.module:Class"
    ):
        parse_source(text)


@pytest.mark.parametrize(
    "text",
    ["", "x", "1x", "1x3:", "1x3:float", "a b=1", "1x-3", "1x3:int65", "99999999999"],
)
def test_a_text_that_describes_no_input_is_refused(text: str) -> None:
    with pytest.raises(SourceNameError):
        parse_input(text)


def test_code_of_the_user_is_told_from_collections() -> None:
    assert parse_source("net.py:Net").own_code and parse_source("a.b:Net").own_code
    assert (
        not parse_source("a/net.pt2").own_code and parse_source("a/net.onnx").looked_at
    )  # nothing of them runs
    assert (
        not parse_source("torchvision:resnet18").own_code
        and not parse_source("hf:google/bert").own_code
    )
