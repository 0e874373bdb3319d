"""Who borrows torch's generator puts it back as it was, whatever happens meanwhile."""

from __future__ import annotations

import threading

import pytest
import torch

from app.util.rng import GENERATOR, borrowed


@pytest.mark.parametrize("seed", [None, 0, 2**63 - 1])
def test_put_back_exactly(seed: int | None) -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    with borrowed(seed):
        torch.rand(1000)
    assert torch.equal(torch.get_rng_state(), before)


def test_put_back_after_an_error() -> None:
    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), borrowed(1):
        torch.rand(3)
        raise ZeroDivisionError
    assert torch.equal(torch.get_rng_state(), before)
    assert GENERATOR.acquire(blocking=False)
    GENERATOR.release()


def test_the_seed_gives_what_torch_gives() -> None:
    torch.manual_seed(5)
    wanted = torch.rand(4)
    with borrowed(5):
        assert torch.equal(torch.rand(4), wanted)


def test_may_be_borrowed_within_a_loan() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    with GENERATOR, borrowed(2):
        first = torch.rand(3)
        with borrowed(3):
            torch.rand(5)
        second = torch.rand(3)
    with borrowed(2):
        assert torch.equal(torch.cat([first, second]), torch.rand(6))
    assert torch.equal(torch.get_rng_state(), before)


def test_two_threads_take_turns() -> None:
    found: list[torch.Tensor] = []

    def draw() -> None:
        for _ in range(50):
            with borrowed(9):
                found.append(torch.rand(20))

    torch.manual_seed(1)
    before = torch.get_rng_state()
    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 200 and all(torch.equal(one, found[0]) for one in found)
    assert torch.equal(torch.get_rng_state(), before)


def test_no_seed_is_left_for_devices_that_start_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`torch.manual_seed` would seed a CUDA that is not there yet, and a run begun later would feel it."""
    if torch.cuda.is_initialized():
        pytest.skip("CUDA has started, so its generators are there to be put back")
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    monkeypatch.setattr(torch.cuda, "manual_seed", seeded.append)
    with borrowed(4):
        torch.rand(2)
    assert seeded == []
