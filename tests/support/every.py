"""One test of all members of a table, for checks that take less time than a case of pytest does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import pytest


def every(members: Mapping[str, Any]) -> Callable[[Callable[..., None]], Any]:
    """Make of a check of one member, its last argument, a test of all of them.

    None keeps the next from being checked: the test fails with the names of all that fail, each with where and why.
    """
    assert members, "there is nothing to be checked"

    def test_of(check: Callable[..., None]) -> Callable[..., None]:
        @wraps(check)
        def test(*own: Any) -> None:
            failed: dict[str, BaseException] = {}
            for name, member in members.items():
                try:
                    check(*own, member)
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"So it is with {name}.")
                    failed[name] = error
            if failed:
                raise BaseExceptionGroup(
                    f"{len(failed)} of {len(members)} fail: {', '.join(failed)}",
                    [*failed.values()],
                )

        del test.__wrapped__  # type: ignore[attr-defined]  # pytest would take its arguments for fixtures
        return test

    return test_of
