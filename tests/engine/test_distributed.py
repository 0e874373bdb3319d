"""Several processes: the losses of one with the whole batch, hands that all of them obey, and none left behind."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from app.data.config import DataConfig
from app.engine import distributed, pool
from app.engine.json_lines.reader import Clock, Reader
from app.engine.placement import RunPlacement
from app.engine.remote_control import RemoteRunError
from app.export.script.script import training_script
from app.training.config import INPUT, Choice, OutputLoss, Schedule
from app.training.events import (
    EpochDone,
    Failed,
    Finished,
    Paused,
    Resumed,
    Saved,
    StepDone,
    to_json,
)
from app.training.job import Job
from app.util.frozen import FrozenMap
from tests.engine.test_child import ROOT, alive, wait_for
from tests.support.engines import stop
from tests.support.forked_popen import with_forks
from tests.support.forked_python import start_forked
from tests.support.training_jobs import (
    CONV_NET,
    TWO_OUTPUTS,
    adam,
    job,
    losses,
    net,
    run,
)

PLAIN_NET = net(
    ["self.linear1 = nn.Linear(64, 16)", "self.linear2 = nn.Linear(16, 10)"],
    ["x = F.relu(self.linear1(x.flatten(1)))", "return self.linear2(x)"],
)
TWO = RunPlacement(2)

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="looks into /proc"
)


@pytest.fixture
def ranks(monkeypatch):
    """The ids of the ranks that a test starts, in order; neither they nor what prepared them is there at its end."""
    ids, others, start = [], [], pool.start

    def kept(entry, *given, **named):
        made = start(entry, *given, **named)
        (ids if entry == "rank" else others).append(made.pid)
        return made

    monkeypatch.setattr(pool, "start", kept)
    yield ids
    assert ids and not any(map(alive, [*ids, *others]))


# Weights of the classes, an odd rest of a batch, accumulation, a schedule by the validation loss.
HARD = job(
    PLAIN_NET,
    epochs=2,
    batch_size=101,
    accumulate=3,
    clip_norm=0.5,
    data=DataConfig(class_weights=True),
    optimizer=adam(lr=0.01),
    schedule=Schedule(
        Choice("ReduceLROnPlateau", FrozenMap(patience=0, threshold=0.5)), "epoch"
    ),
)


def test_two_processes_have_the_losses_of_one_and_obey(tmp_path, ranks):
    """Step, pause, resume; the numbers are those of one process with the whole batch."""
    import torch

    from app.training.control import Control
    from app.training.loop import train

    whole = Control()
    one = list(train(HARD, whole))
    control = distributed.LineControl()
    control.step()  # said before anybody hears it
    events, stood = [], []
    for event in distributed.train(
        HARD, control, place=TWO, folder=tmp_path / "checkpoints"
    ):
        events.append(event)
        if isinstance(event, Paused):
            stood.append(event.step)
            assert len(ranks) == 2 and all(map(alive, ranks))
            control.step() if len(stood) == 1 else control.resume()
    assert stood == [1, 2] and [e.step for e in events if isinstance(e, Resumed)] == [2]
    assert losses(events) == pytest.approx(losses(one), abs=1e-6)
    ours, theirs = (
        [e for e in each if isinstance(e, EpochDone)] for each in (one, events)
    )
    assert [e.val_loss for e in theirs] == pytest.approx(
        [e.val_loss for e in ours], abs=1e-6
    )
    assert [e.train_accuracy for e in theirs] == [e.train_accuracy for e in ours]
    assert isinstance(events[-1], Finished) and events[-1].reason == "done"
    for name, value in whole.weights().items():
        assert torch.allclose(control.weights()[name], value, atol=1e-5)
    assert {"model.py", "train.py"} <= {
        path.name for path in (tmp_path / "processes").iterdir()
    }
    with pytest.raises(RemoteRunError):
        control.call(lambda live: live.step).result()


def test_none_is_left_behind_when_one_fails(ranks):
    source = net(
        ["self.linear1 = nn.Linear(64, 10)"],
        ["return self.linear1(torch.log(x.flatten(1)))"],
    )
    failed = list(distributed.train(job(source), place=TWO))[-1]
    assert isinstance(failed, Failed) and "The loss of step 1 is" in failed.message


_PARENT = """
import sys
from app.engine import distributed, pool
from app.engine.placement import RunPlacement
from app.training.events import StepDone
from tests.engine.test_distributed import PLAIN_NET, job
pool.prepare()
started, start = [], pool.start
pool.start = lambda *given, **named: started.append(start(*given, **named)) or started[-1]
for event in distributed.train(job(PLAIN_NET, epochs=100_000), place=RunPlacement(2)):
    if isinstance(event, StepDone):
        print(*(one.pid for one in started), flush=True)
        sys.stdin.read()
"""


def test_none_outlives_a_window_that_is_killed(tmp_path):
    parent = start_forked(with_forks(tmp_path, _PARENT), cwd=ROOT)
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 3 and all(map(alive, pids[1:])), (
        "what wrote the script has ended"
    )
    for rank in pids[1:]:
        stop(rank)  # it sees no end of a pipe, as while a kernel takes long
    os.kill(parent.pid, signal.SIGKILL)
    try:
        wait_for(lambda: not any(map(alive, pids)))
    finally:
        for pid in filter(alive, pids):
            os.kill(pid, signal.SIGKILL)


def test_an_empty_part_and_a_weighted_loss_count_for_what_they_are(monkeypatch):
    """The parts of a batch, read off the script itself: their shares have the mean of the whole batch."""
    import torch

    text = training_script(HARD)
    spaces = []
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "3")
        start, end = text.index("RANK, PROCESSES"), text.index("def over_all")
        functions = text[text.index("def part_of") : end]
        space: dict = {"Tensor": torch.Tensor}
        exec(
            "import os\n" + text[start : text.index("\n", start)] + "\n" + functions,
            space,
        )
        spaces.append(space)
    labels, weight = torch.tensor([0, 1, 1, 2, 0]), torch.tensor([1.0, 2.0, 5.0])
    losses_of = torch.tensor([0.3, 1.7, 0.2, 2.2, 0.9])
    for batch in (torch.arange(5), torch.tensor([1, 3])):
        total = 0.0
        for space in spaces:
            part, portion = space["part_of"](batch, labels, weight)
            w = weight[labels[part]]
            total += float((losses_of[part] * w).sum() / w.sum() * portion) / 3
        w = weight[labels[batch]]
        assert total == pytest.approx(
            float((losses_of[batch] * w).sum() / w.sum()), abs=1e-6
        )


def test_weighed_losses_of_several_outputs_count_for_what_they_are():
    """As above, of two outputs: one weighed by its classes, one not, and one that is a sum."""
    import torch

    rows = (
        OutputLoss("digit", Choice("CrossEntropyLoss")),
        OutputLoss("again", Choice("MSELoss"), 0.5, INPUT),
    )
    summed = OutputLoss(
        "again", Choice("MSELoss", FrozenMap(reduction="sum")), 0.5, INPUT
    )
    text = training_script(
        job(TWO_OUTPUTS, data=DataConfig(class_weights=True), losses=rows)
    )
    assert (
        "'digit': outweighs(labels, loss_function.losses[0].weight, batch, every),"
        in text
    )
    assert "'again': " not in text
    assert "'again': len(every) / len(batch)," in training_script(
        job(TWO_OUTPUTS, losses=(rows[0], summed))
    )
    assert (
        "portions"
        not in training_script(job(TWO_OUTPUTS, losses=rows)).split("def main")[1]
    )
    space: dict = {"Tensor": torch.Tensor}
    exec(text[text.index("def outweighs") : text.index("def evaluate")], space)
    labels, weight = torch.tensor([0, 1, 1, 2, 0]), torch.tensor([1.0, 2.0, 5.0])
    losses_of, batch = torch.tensor([0.3, 1.7, 0.2, 2.2, 0.9]), torch.arange(5)
    total = 0.0
    for part in batch.tensor_split(2):
        w, portion = weight[labels[part]], 2 * len(part) / len(batch)
        own = (losses_of[part] * w).sum() / w.sum()
        total += (
            float(own * portion * space["outweighs"](labels, weight, part, batch)) / 2
        )
    w = weight[labels]
    assert total == pytest.approx(float((losses_of * w).sum() / w.sum()), abs=1e-6)


def test_lines_become_the_events_that_they_were():
    told = run(job(CONV_NET, epochs=1, batch_size=500))
    reader = Reader(Clock())
    back = [reader.event(line) for event in told if (line := to_json(event))]
    assert [to_json(event) for event in back] == [
        line for event in told if (line := to_json(event))
    ]
    steps = [(e.samples, e.step) for e in told if isinstance(e, StepDone)]
    assert [(e.samples, e.step) for e in back if isinstance(e, StepDone)] == steps
    assert reader.event(json.dumps({"event": "of tomorrow"})) is None
    for line in ("{", "[]", '{"event": "step"}', "hello"):
        with pytest.raises(ValueError, match="not a line of a run"):
            reader.event(line)


def test_a_name_that_python_has_no_room_for_is_told(tmp_path, monkeypatch):
    none_left = OSError("no more processes")
    monkeypatch.setattr(
        pool, "start", lambda *_given, **_named: (_ for _ in ()).throw(none_left)
    )
    (failed,) = distributed.train(Job(PLAIN_NET, training=job().training), place=TWO)
    assert failed.kind == "process" and "no more processes" in failed.message


def test_two_processes_stopped_in_the_midst_go_on_as_if_nothing_had_been(
    tmp_path, ranks
):
    """Dropout of each process, accumulated gradients, a running mean: the losses of the whole run, bit for bit."""
    from app.training.checkpoints import checkpoint

    source = net(
        [
            "self.linear1 = nn.Linear(64, 16)",
            "self.drop1 = nn.Dropout(0.3)",
            "self.linear2 = nn.Linear(16, 10)",
        ],
        [
            "x = self.drop1(F.relu(self.linear1(x.flatten(1))))",
            "return self.linear2(x)",
        ],
    )
    a_job = job(
        source, epochs=2, batch_size=200, accumulate=3, ema=0.9, save_every=3, threads=1
    )
    folder = tmp_path / "checkpoints"
    whole = list(distributed.train(a_job, place=TWO, folder=folder))
    assert isinstance(whole[-1], Finished), whole[-1]
    saved = [
        (event.step, Path(event.path).name)
        for event in whole
        if isinstance(event, Saved)
    ]
    assert saved[:2] == [(3, "step-00000003.pt"), (6, "step-00000006.pt")] and saved[
        -1
    ] == (16, "last.pt")
    assert {path.name for path in folder.iterdir()} == {
        "step-00000012.pt",
        "step-00000015.pt",
        "best.pt",
        "last.pt",
    }
    control, first = distributed.LineControl(), []
    for event in distributed.train(
        a_job, control, place=TWO, folder=tmp_path / "again" / "checkpoints"
    ):
        first.append(event)
        if isinstance(event, StepDone) and event.step == 4:
            control.stop()
    stopped = checkpoint.newest(tmp_path / "again" / "checkpoints")
    rest = list(distributed.train(a_job, place=TWO, resume=stopped))
    assert rest[0].resumed_at == first[-1].steps and not rest[0].changed
    assert losses(first) + losses(rest) == losses(whole)
    told = [
        (e.epoch, e.train_loss, e.train_accuracy, e.val_loss)
        for e in [*first, *rest]
        if isinstance(e, EpochDone)
    ]
    assert told == [
        (e.epoch, e.train_loss, e.train_accuracy, e.val_loss)
        for e in whole
        if isinstance(e, EpochDone)
    ]
    other = list(
        distributed.train(job(PLAIN_NET, epochs=2), place=TWO, resume=stopped)
    )[-1]
    assert isinstance(other, Failed) and "another net" in other.message


def test_two_processes_stopped_between_two_epochs_go_on_with_the_same_order(
    tmp_path, ranks
):
    from app.training.checkpoints import checkpoint

    a_job = job(PLAIN_NET, epochs=2, batch_size=800)
    whole = list(distributed.train(a_job, place=TWO))
    steps = len(losses(whole)) // 2
    control, first = distributed.LineControl(), []
    control.pause()
    for event in distributed.train(
        a_job, control, place=TWO, folder=tmp_path / "checkpoints"
    ):
        first.append(event)
        if isinstance(event, Paused):
            control.stop() if event.step == steps else control.step()
    rest = list(
        distributed.train(
            a_job, place=TWO, resume=checkpoint.newest(tmp_path / "checkpoints")
        )
    )
    assert len(losses(first)) == steps and losses(first) + losses(rest) == losses(whole)
