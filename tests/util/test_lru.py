"""A cache holds what was asked for last, whichever threads ask."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Hashable

from hypothesis import given
from hypothesis import strategies as st

from app.util.lru import LruCache, Same

STEPS = st.lists(
    st.tuples(st.sampled_from(["get", "put"]), st.integers(0, 5), st.integers(1, 4)),
    max_size=60,
)


class Thing:
    pass


@given(STEPS, st.integers(1, 9))
def test_what_was_asked_for_longest_ago_goes_first(
    steps: list[tuple[str, int, int]], room: int
) -> None:
    """Against a list that is ordered anew at every step; values are their own sizes."""
    cache: LruCache[int] = LruCache(room, float)
    model: list[tuple[Hashable, int]] = []
    for what, key, size in steps:
        known = dict(model).get(key)
        if what == "get":
            assert cache.get(key) == known
            size = known or 0
        else:
            cache.put(key, size)
        if size:
            model = [one for one in model if one[0] != key] + [(key, size)]
        while len(model) > 1 and sum(size for _, size in model) > room:
            del model[0]
        assert len(cache) == len(model)


def test_threads_that_compute_at_once_get_the_same() -> None:
    cache: LruCache[Thing] = LruCache(10)
    both, found = threading.Barrier(2), []

    def compute() -> Thing:
        both.wait(300)
        return Thing()

    threads = [
        threading.Thread(
            target=lambda: found.append(cache.get_or_compute("x", compute))
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2 and found[0] is found[1] is cache.get("x")


def test_a_key_by_identity_keeps_its_object_until_it_is_forgotten() -> None:
    cache: LruCache[str] = LruCache(1)
    thing = Thing()
    known = weakref.ref(thing)
    cache.put(Same(thing), "a")
    del thing
    gc.collect()
    assert known() is not None, "another would get its identity"
    cache.put(Same(Thing()), "b")
    assert known() is None
