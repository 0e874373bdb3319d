"""The events of a run as sentences of the console."""

from __future__ import annotations

from msgspec.structs import replace

from app.features.runs.console import lines_of
from app.training.events import EpochDone, Finished, Started
from tests.support.run_sessions import FAILED


def test_what_a_run_tells_in_sentences():
    started = Started(
        "cuda:0", "There is no cuda:1.", 20, 64, 23, 0, 34250, ("conv1",), 1437, 360
    )
    assert [line.text for line in lines_of(started)] == [
        "Training on cuda:0, seed 0: 34,250 parameters, 1,437 training and 360 validation samples, "
        "20 epochs of 23 batches of 64.",
        "There is no cuda:1.",
    ]
    changed = "It goes on with 2 threads instead of 1."
    frozen = replace(started, parameters=19_466, frozen=65_600, changed=changed)
    counts, warning = lines_of(frozen)[0], lines_of(frozen)[-1]
    assert "85,066 parameters: 19,466 trainable, 65,600 frozen" in counts.text
    assert (warning.text, warning.tone) == (changed, "warn")
    epoch = EpochDone(3, 69, 0.168, 0.9701, 0.143, 0.9694, 1.0)
    assert lines_of(epoch, 20)[0].text == (
        "Epoch 3/20: training loss 0.168, accuracy 97.01 %; validation loss 0.143, accuracy 96.94 %."
    )
    assert lines_of(EpochDone(3, 69, 0.168, 0.9701, None, None, 1.0))[0].text.endswith(
        "no validation samples."
    )
    assert (
        lines_of(Finished("stopped", 2, 30, 4.21))[0].text
        == "Stopped after 30 steps, 4.2 s."
    )
    (failed,) = lines_of(FAILED)
    assert (
        failed.text == "Step 2 failed. Look at the wires."
        and failed.detail.startswith("Traceback")
    )
