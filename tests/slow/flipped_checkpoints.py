"""Flipped bits and cuts of checkpoints: is each told, or harmless?

A checkpoint of a short run (dropout, batch norm, AdamW, a schedule, a running mean) is damaged in one place at a time.
"Told": reading it raises CheckpointError, and the newest whole checkpoint beside it is taken. "Harmless": what was
loaded equals what was written, bit for bit.

    python -m tests.slow.flipped_checkpoints --flips 500 --cuts 300
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """`silent` names each damage that was loaded as something else without a word."""

    told: int
    harmless: int
    silent: tuple[str, ...]
    cuts_told: int
    size: int
    seconds: float


def a_run(folder: Path) -> None:
    """Leave the checkpoints of a short run in `folder`."""
    from app.training.config import Choice, Schedule
    from app.training.loop import train
    from app.util.frozen import FrozenMap
    from tests.support.training_jobs import SMALL_NET, job

    schedule = Schedule(Choice("CosineAnnealingLR", FrozenMap(T_max=200)), "step", 5)
    adamw = Choice("AdamW", FrozenMap(lr=0.01))
    a_job = job(
        SMALL_NET,
        epochs=1,
        max_steps=10,
        save_every=4,
        schedule=schedule,
        optimizer=adamw,
        ema=0.9,
    )
    for _event in train(a_job, threads=1, folder=folder):
        pass


def same(one: Any, other: Any) -> bool:
    """Whether two states hold the same values, bit for bit."""
    import torch

    if isinstance(one, torch.Tensor):
        if not isinstance(other, torch.Tensor) or (one.dtype, one.shape) != (
            other.dtype,
            other.shape,
        ):
            return False
        return (
            one.contiguous().numpy().tobytes() == other.contiguous().numpy().tobytes()
        )
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(
            same(one[key], other[key]) for key in one
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(repr(one) == repr(other))


def damaged(folder: Path, flips: int, cuts: int, choose: random.Random) -> Outcome:
    """Damage the last checkpoint of a run in many ways, one at a time."""
    from app.training.checkpoints import checkpoint

    began = time.perf_counter()
    a_run(folder)
    last = folder / checkpoint.LAST
    data, whole = last.read_bytes(), checkpoint.load(last)
    last.unlink()
    before = checkpoint.newest(folder)

    def is_told() -> bool:
        """Whether the file is told of; then the one before it is taken."""
        words: list[str] = []
        taken = checkpoint.newest(folder, words.append)
        if taken == last:
            return False
        assert taken == before and any(str(last) in one for one in words), (
            taken,
            words,
        )
        return True

    told = harmless = cuts_told = 0
    silent = []
    for _ in range(flips):
        bit = choose.randrange(8 * len(data))
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        last.write_bytes(flipped)
        if is_told():
            told += 1
        elif same(checkpoint.load(last), whole):
            harmless += 1
        else:
            silent.append(f"bit {bit}")
    for number in range(cuts):
        last.write_bytes(data[: choose.randrange(len(data)) if number else 0])
        cuts_told += is_told()
    last.write_bytes(data)
    assert checkpoint.newest(folder) == last
    return Outcome(
        told, harmless, tuple(silent), cuts_told, len(data), time.perf_counter() - began
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--flips", type=int, default=500)
    parser.add_argument("--cuts", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = damaged(
            Path(folder), options.flips, options.cuts, random.Random(options.seed)
        )
    for each in found.silent:
        print(f"read as other values without a word: {each}")
    fine = found.told + found.harmless
    print(
        f"{fine} of {options.flips} flips told or harmless ({found.told} told, {found.harmless} harmless), "
        f"{found.cuts_told} of {options.cuts} cuts told, checkpoint of {found.size:,} bytes, "
        f"{found.seconds:.0f} s"
    )
    return 0 if not found.silent and found.cuts_told == options.cuts else 1


if __name__ == "__main__":
    sys.exit(main())
