"""Several processes: the losses of one with the whole batch, hands that all of them obey, and none left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.data.config import DataConfig
from app.engine import pool, run_process
from app.engine.placement import RunPlacement
from app.engine.remote_control import RemoteControl, RemoteRunError
from app.export.train_script import training_script
from app.training.config import INPUT, Choice, OutputLoss, Schedule
from app.training.events import (
    EpochDone,
    Failed,
    Finished,
    GradientNorms,
    Paused,
    Resumed,
    Saved,
    StepDone,
    to_json,
)
from app.training.job import Job
from app.training.run_requests import LookInside, SetRate
from app.util.frozen import FrozenMap
from tests.engine.test_child import ROOT, alive, wait_for
from tests.support.engines import stop
from tests.support.forked_popen import with_forks
from tests.support.forked_python import run_forked, start_forked
from tests.support.training_jobs import (
    TWO_OUTPUTS,
    adam,
    job,
    losses,
    net,
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
    """The ids of the ranks that a test starts, in order; none of them is there at its end."""
    ids, start = [], pool.start

    def recorded(*arguments, **named):
        child = start(*arguments, **named)
        ids.append(child.pid)
        return child

    monkeypatch.setattr(pool, "start", recorded)
    yield ids
    assert len(ids) > 1 and not any(map(alive, ids))


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
    control = RemoteControl(2)
    control.step()  # said before anybody hears it
    events, stood = [], []
    for event in run_process.train(
        HARD, control, place=TWO, folder=tmp_path / "checkpoints"
    ):
        events.append(event)
        if isinstance(event, Paused):
            stood.append(event.step)
            assert len(ranks) == 2 and all(map(alive, ranks))
            if len(stood) == 1:
                inside = control.call(LookInside("linear1", 3))
                refused = control.call(SetRate(0.1))
                assert len(control.weights(60)) == 4
            control.step() if len(stood) == 1 else control.resume()
    assert inside.result().layer == "linear1"
    with pytest.raises(RemoteRunError, match="several processes"):
        refused.result()
    norms = [event.layers for event in events if isinstance(event, GradientNorms)]
    assert norms[0] == ("linear1", "linear2") and events[0].train_count == 1438
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
    with pytest.raises(RemoteRunError):
        control.call(lambda live: live.step).result()


AS_THE_SCRIPT = {
    "weighed by classes": HARD,
    "a sum": job(
        PLAIN_NET,
        epochs=1,
        batch_size=719,  # of the last batch, one process has no sample
        loss=Choice("CrossEntropyLoss", FrozenMap(reduction="sum")),
        optimizer=adam(lr=1e-4),
    ),
    "several outputs": job(
        TWO_OUTPUTS,
        epochs=1,
        batch_size=300,
        data=DataConfig(class_weights=True),
        losses=(
            OutputLoss("digit", Choice("CrossEntropyLoss")),
            OutputLoss("again", Choice("MSELoss"), 0.5, INPUT),
        ),
    ),
    "mixed, averaged, closed over": job(
        PLAIN_NET,
        epochs=1,
        batch_size=480,
        mixup=0.4,
        ema=0.9,
        optimizer=Choice("LBFGS", FrozenMap(lr=0.1, max_iter=3)),
    ),
}


@pytest.mark.parametrize("name", AS_THE_SCRIPT)
def test_two_processes_have_the_losses_of_the_exported_script(name, tmp_path, ranks):
    """Bit for bit, those of the epochs and of each output too."""
    a_job = AS_THE_SCRIPT[name]
    a_job = replace(a_job, training=replace(a_job.training, threads=1))
    (tmp_path / "model.py").write_text(a_job.source.text)
    (tmp_path / "train.py").write_text(training_script(a_job))
    program = with_forks(
        tmp_path,
        "import runpy\nsys.argv[0] = 'train.py'\nrunpy.run_path('train.py', {}, '__main__')\n",
    )
    arguments = ["--processes", "2", "--json", "--device", "cpu"]
    done = run_forked(program, *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if '"started"' not in line]
    a_job = replace(a_job, training=replace(a_job.training, device="cpu"))
    events = list(run_process.train(a_job, place=TWO))
    told = [line for event in events[1:] if (line := to_json(event)) is not None]
    assert lines == told


def test_none_is_left_behind_when_one_fails(ranks):
    source = net(
        ["self.linear1 = nn.Linear(64, 10)"],
        ["return self.linear1(torch.log(x.flatten(1)))"],
    )
    failed = list(run_process.train(job(source), place=TWO))[-1]
    assert isinstance(failed, Failed) and "The loss of step 1 is" in failed.message


_PARENT = """
import sys
from app.engine import pool, run_process
from app.engine.placement import RunPlacement
from app.training.events import StepDone
from tests.training.test_ranks import PLAIN_NET, job
pool.prepare()
started, start = [], pool.start
pool.start = lambda *given, **named: started.append(start(*given, **named)) or started[-1]
for event in run_process.train(job(PLAIN_NET, epochs=100_000), place=RunPlacement(2)):
    if isinstance(event, StepDone):
        print(*(one.pid for one in started), flush=True)
        sys.stdin.read()
"""


def test_none_outlives_a_window_that_is_killed(tmp_path):
    parent = start_forked(with_forks(tmp_path, _PARENT), cwd=ROOT)
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2 and all(map(alive, pids))
    for rank in pids:
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


def test_a_name_that_python_has_no_room_for_is_told(tmp_path, monkeypatch):
    none_left = OSError("no more processes")
    monkeypatch.setattr(
        pool, "start", lambda *_given, **_named: (_ for _ in ()).throw(none_left)
    )
    (failed,) = run_process.train(Job(PLAIN_NET, training=job().training), place=TWO)
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
    whole = list(run_process.train(a_job, place=TWO, folder=folder))
    assert isinstance(whole[-1], Finished), whole[-1]
    saved = [
        (event.step, Path(event.path).name)
        for event in whole
        if isinstance(event, Saved)
    ]
    assert {(3, "step-00000003.pt"), (15, "step-00000015.pt"), (16, "last.pt")} <= {
        *saved
    }
    assert {path.name for path in folder.iterdir()} == {
        "step-00000012.pt",
        "step-00000015.pt",
        "best.pt",
        "last.pt",
    }
    control, first = RemoteControl(2), []
    for event in run_process.train(
        a_job, control, place=TWO, folder=tmp_path / "again" / "checkpoints"
    ):
        first.append(event)
        if isinstance(event, StepDone) and event.step == 4:
            control.stop()
    stopped = checkpoint.newest(tmp_path / "again" / "checkpoints")
    rest = list(run_process.train(a_job, place=TWO, resume=stopped))
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
        run_process.train(job(PLAIN_NET, epochs=2), place=TWO, resume=stopped)
    )[-1]
    assert isinstance(other, Failed) and "another net" in other.message


def test_two_processes_stopped_between_two_epochs_go_on_with_the_same_order(
    tmp_path, ranks
):
    from app.training.checkpoints import checkpoint

    a_job = job(PLAIN_NET, epochs=2, batch_size=800)
    whole = list(run_process.train(a_job, place=TWO))
    steps = len(losses(whole)) // 2
    control, first = RemoteControl(2), []
    control.pause()
    for event in run_process.train(
        a_job, control, place=TWO, folder=tmp_path / "checkpoints"
    ):
        first.append(event)
        if isinstance(event, Paused):
            control.stop() if event.step == steps else control.step()
    rest = list(
        run_process.train(
            a_job, place=TWO, resume=checkpoint.newest(tmp_path / "checkpoints")
        )
    )
    assert len(losses(first)) == steps and losses(first) + losses(rest) == losses(whole)
