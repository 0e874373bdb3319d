"""What a wheel pulls: licences that let a person pass it on, and a list of parts that has all of them."""

from __future__ import annotations

import re

import pytest

from scripts.packages import Package, bill_of_materials, pulled


def test_every_package_that_a_wheel_pulls_has_a_free_licence() -> None:
    assert {"torch", "numpy", "pyside6-essentials", "joblib"} <= {
        package.name for package in pulled()
    }
    assert [package for package in pulled() if not package.is_free] == []


@pytest.mark.parametrize(
    ("licence", "free"),
    [
        ("MIT", True),
        ("LGPL-3.0-only OR GPL-3.0-only", True),
        ("Apache-2.0 WITH LLVM-exception AND MIT", True),
        ("GPL-3.0-only", False),
        ("MIT AND GPL-3.0-only", False),
        ("", False),
    ],
)
def test_a_licence_is_free_if_all_that_is_joined_is_and_one_that_can_be_chosen(
    licence: str, free: bool
) -> None:
    assert Package("some", "1", licence).is_free is free


def test_the_list_of_parts_has_each_with_version_and_hashes() -> None:
    """torch and torchvision come from an index of one's choice, so their files are not those of a list."""
    components = bill_of_materials()["components"]
    assert [(part["name"], part["version"]) for part in components] == [
        (package.name, package.version) for package in pulled()
    ]
    without = {part["name"] for part in components if not part["properties"]}
    assert without == {"torch", "torchvision"}
    values = [one["value"] for part in components for one in part["properties"]]
    assert all(re.fullmatch("[0-9a-f]{64}", value) for value in values)
