"""The campaign of damaged data sets tells a refusal from a crash, on a few of its sets."""

from __future__ import annotations

import pytest

from tests.slow import damaged_data
from tests.slow.damaged_data import Case, cases, outcome
from tests.support.forked_python import fork_scripts

CHOSEN = {
    "arrays: a flipped bit": "refused",
    "pictures: a cut JPEG": "read",
    "table: a pipe": "refused",
}


@pytest.fixture(autouse=True)
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    fork_scripts(monkeypatch, damaged_data)


@pytest.mark.parametrize("name", CHOSEN)
def test_a_damaged_data_set_is_refused_or_read_without_its_bad_samples(name, tmp_path):
    (case,) = (one for one in cases() if one.name == name)
    assert outcome(case, tmp_path).verdict == CHOSEN[name]


def test_samples_that_get_lost_unsaid_are_a_failure(tmp_path):
    def write(folder):
        (folder / "t.csv").write_text("a,b\n1,x\n2,y\n")
        return folder / "t.csv"

    assert (
        outcome(Case("two rows", "file.csv", write, keeps=3), tmp_path).verdict
        == "failed"
    )


def test_there_are_60_at_least_and_each_has_its_name():
    names = [case.name for case in cases()]
    assert len(set(names)) == len(names) >= 60
