"""What recording all gradient norms costs a training step (aim: at most 1.10 of it), and what it costs once it is off.

Two nets: the bundled MNIST net at the batch size of its project, and torchvision's resnet18 at batch 16, on noise of
the right shape. A figure is the CPU time that the process takes for a step with the recorder on by that of a plain
step, measured in turns in the same process.

    python benchmarks/bench_tape.py [short]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import _jobs
from _report import Figure, in_turns, publish

ROUNDS = 15
# Steps that are measured together: those of a small net are short.
NETS = {"MNIST net": 20, "resnet18 at batch 16": 1}


def stepper(name: str) -> Callable[[bool], float]:
    """step(recorded) trains one of `_jobs.NETS` by batches of noise and answers the CPU seconds that a step took."""
    import torch
    from torch.nn import functional as F

    from app.autograd.record import record
    from app.builder.analysis import analyse
    from app.own_layers import ops_of
    from app.source import make_module

    project = _jobs.NETS[name][0]()
    source = analyse(project.graph, ops_of(project)).source
    torch.manual_seed(0)
    model = make_module(source)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(project.training.batch_size, *source.inputs[0].shape)
    y = torch.randint(0, 10, (len(x),))

    def step(recorded: bool) -> None:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        if recorded:
            with record(loss) as recorder:
                loss.backward()
            recorder.finish()
        else:
            loss.backward()
        optimizer.step()

    def steps(recorded: bool) -> float:
        started = time.process_time()
        for _ in range(NETS[name]):
            step(recorded)
        return (time.process_time() - started) / NETS[name]

    for recorded in (False, True, False):
        step(recorded)  # warm-up
    return steps


def measured(name: str, rounds: int) -> list[Figure]:
    """The figures of one net. Off is the same step once more, on a model that was recorded right before it."""
    never, step = stepper(name), stepper(name)
    on, plain = in_turns(lambda: step(True), lambda: step(False), rounds)
    off, untouched = in_turns(lambda: step(False), lambda: never(False), rounds)
    return [
        Figure(f"{name}: a step with all gradient norms recorded", "CPU s", on, plain, 1.10),
        Figure(f"{name}: a step with the recorder off again, against a net never recorded", "CPU s", off, untouched),
    ]


def main(arguments: list[str]) -> None:
    rounds = 3 if "short" in arguments else ROUNDS
    publish("tape", [figure for name in NETS for figure in measured(name, rounds)])


if __name__ == "__main__":
    main(sys.argv[1:])
