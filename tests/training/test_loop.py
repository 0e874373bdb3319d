"""The loop: its numbers are those of plain PyTorch, whoever watches, pauses or looks inside."""

import math

import pytest

from app.data.config import DataConfig
from app.data.loaders import load
from app.training.config import Choice
from app.training.control import Control
from app.training.events import (
    EpochDone,
    Failed,
    Finished,
    GradientNorms,
    MemorySample,
    Paused,
    Started,
    StepDone,
)
from app.training.loop import train
from app.util.rng import borrowed
from tests.support.training_jobs import CONV_NET, SMALL_NET, adam, job, losses, run


def plain_losses(source, epochs: int, seed: int) -> list[float]:
    """The same run as a beginner's tutorial writes it."""
    import torch

    from app.source.compiled import make_module

    data = load(DataConfig())
    torch.manual_seed(seed)
    model = make_module(source)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    shuffle = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(epochs):
        model.train()
        for batch in torch.randperm(len(data.train.inputs), generator=shuffle).split(
            64
        ):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(
                model(data.train.inputs[batch]), data.train.labels[batch]
            )
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        model.eval()
        with torch.no_grad():
            model(data.val.inputs)
    return found


@pytest.fixture(scope="module")
def small_losses() -> list[float]:
    return losses(run(job()))


@pytest.mark.parametrize("source", [CONV_NET, SMALL_NET], ids=["conv", "dropout"])
def test_the_losses_are_those_of_plain_pytorch_bit_for_bit(source):
    assert losses(run(job(source, epochs=2, seed=3))) == plain_losses(source, 2, 3)


def test_a_small_conv_net_learns_the_digits():
    events = run(job(CONV_NET, epochs=5, optimizer=adam(lr=0.005)))
    last = [event for event in events if isinstance(event, EpochDone)][-1]
    assert last.val_accuracy >= 0.97 and last.train_accuracy >= 0.97
    assert last.val_loss < 0.15


def test_the_events_tell_the_whole_run():
    events = run(job(CONV_NET, epochs=2))
    started, finished = events[0], events[-1]
    assert isinstance(started, Started) and isinstance(finished, Finished)
    assert started.layers == ("conv1", "norm1", "conv2", "linear1")
    steps = [event for event in events if isinstance(event, StepDone)]
    assert len(steps) == 2 * started.steps_per_epoch == finished.steps
    assert [event.step for event in steps] == list(range(1, finished.steps + 1))
    assert sum(event.samples for event in steps) == 2 * started.train_count
    assert [event.seconds for event in steps] == sorted(
        event.seconds for event in steps
    )
    norms = [event for event in events if isinstance(event, GradientNorms)]
    assert norms and all(
        len(event.norms) == 4 and min(event.norms) > 0 for event in norms
    )
    samples = [event for event in events if isinstance(event, MemorySample)]
    assert samples and samples[0].scope == "process" and samples[0].resident > 1e7
    assert samples[0].allocated is None and samples[0].peak is None


def test_training_figures_are_means_over_samples():
    events = run(job(epochs=1))
    steps = [event for event in events if isinstance(event, StepDone)]
    epoch = next(event for event in events if isinstance(event, EpochDone))
    total = sum(event.samples for event in steps)
    assert epoch.train_loss == pytest.approx(
        sum(e.loss * e.samples for e in steps) / total, rel=1e-12
    )


def test_a_seed_decides_and_another_differs(small_losses):
    assert losses(run(job())) == small_losses
    assert losses(run(job(seed=1))) != small_losses


def test_pause_step_and_resume_change_no_number(small_losses):
    control = Control()
    control.pause()
    events = []
    for event in train(job(), control):
        events.append(event)
        if isinstance(event, Paused):
            # One batch at a time for a while, then on.
            if event.step < 5:
                control.step()
            else:
                control.resume()
    pauses = [event.step for event in events if isinstance(event, Paused)]
    assert pauses == [0, 1, 2, 3, 4, 5]
    assert losses(events) == small_losses


def test_visits_between_steps_change_no_number(small_losses):
    import torch

    def look(live):
        live.model.eval()
        live.model(torch.randn(3, 1, 8, 8)).sum().backward()
        return live.step

    control, events, visits = Control(), [], []
    for event in train(job(), control):
        events.append(event)
        if isinstance(event, StepDone):
            visits.append(control.call(look))
            with borrowed(seed=7):
                torch.rand(5)
    assert losses(events) == small_losses
    assert [visit.result() for visit in visits] == list(range(1, len(small_losses) + 1))


def test_a_visit_leaves_batch_norm_as_it_was():
    import torch

    def look(live):
        live.model(torch.full((4, 1, 8, 8), 100.0))

    control, events = Control(), []
    for event in train(job(CONV_NET, epochs=1), control):
        events.append(event)
        if isinstance(event, StepDone):
            control.call(look)
    alone = run(job(CONV_NET, epochs=1))
    ours, theirs = (
        next(e for e in each if isinstance(e, EpochDone)) for each in (events, alone)
    )
    assert (ours.val_loss, ours.val_accuracy) == (theirs.val_loss, theirs.val_accuracy)


def test_stop_in_mid_epoch_keeps_the_weights():
    import torch

    control, events = Control(), []
    for event in train(job(), control):
        events.append(event)
        if isinstance(event, StepDone) and event.step == 7:
            control.stop()
    assert events[-1].reason == "stopped" and events[-1].steps == 7
    assert not any(isinstance(event, EpochDone) for event in events)
    result = control.result
    assert (result.ending, result.step) == ("stopped", 7)
    assert set(control.weights()) == {
        "linear1.weight",
        "linear1.bias",
        "linear2.weight",
        "linear2.bias",
    }
    assert all(torch.isfinite(value).all() for value in control.weights().values())


def test_leaving_the_events_alone_keeps_the_weights():
    control = Control()
    events = train(job(), control)
    while not isinstance(next(events), StepDone):
        pass
    events.close()
    assert control.result.ending == "abandoned" and control.weights()


def test_without_validation_samples_there_are_no_validation_figures():
    events = run(job(data=DataConfig(validation_fraction=0), epochs=1))
    epoch = next(event for event in events if isinstance(event, EpochDone))
    assert epoch.val_loss is None and epoch.val_accuracy is None
    assert isinstance(events[-1], Finished)


@pytest.mark.parametrize("loss", ["MSELoss", "BCEWithLogitsLoss", "SmoothL1Loss"])
def test_losses_on_one_hot_targets_learn(loss):
    events = run(job(CONV_NET, epochs=2, loss=Choice(loss), optimizer=adam(lr=0.005)))
    epochs = [event for event in events if isinstance(event, EpochDone)]
    assert epochs[-1].val_accuracy > 0.8 and epochs[-1].val_loss < epochs[0].val_loss


def test_a_device_that_is_absent_falls_back_with_a_word():
    import torch

    if torch.cuda.device_count() > 6:
        pytest.skip("this machine has cuda:6")
    started = next(train(job(device="cuda:6")))
    assert started.device == "cpu" and "cuda:6 is not available" in started.device_note


def test_the_flush_fetches_what_waits_on_a_device(small_losses):
    """The path of accelerators, taken on the CPU: losses come late, in order, and are the same."""
    from app.training import loop

    class Late(loop._Run):
        def _set_up(self, *given):
            started = super()._set_up(*given)
            self._at_once = self._reads = False
            return started

    events = list(Late(job(), Control(), None).events(None, None))
    assert losses(events) == small_losses
    ours = [event for event in events if isinstance(event, EpochDone)]
    theirs = [event for event in run(job()) if isinstance(event, EpochDone)]
    assert [e.train_loss for e in ours] == [e.train_loss for e in theirs]
    assert [e.val_loss for e in ours] == [e.val_loss for e in theirs]


def test_nothing_comes_after_a_failure():
    events = run(job(loss=Choice("NoSuchLoss")))
    assert len(events) == 1 and isinstance(events[0], Failed)
    assert "NoSuchLoss" in events[0].message and "CrossEntropyLoss" in events[0].message
    assert not math.isnan(events[0].step)
