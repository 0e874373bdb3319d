"""Whatever goes wrong in a run ends with a word: what, at which node, what next. The weights stay."""

import pytest
from msgspec.structs import replace

from app.data.config import DataConfig
from app.source.generated import InputSpec
from app.training import loop
from app.training.config import Choice
from app.training.control import Control, NoWeightsError
from app.training.events import Failed, StepDone
from app.training.loop import train
from tests.support.training_jobs import BAD_NET, SMALL_NET, adam, job, net, run


def failed(a_job, control=None) -> Failed:
    event = list(train(a_job, control))[-1]
    assert isinstance(event, Failed), event
    return event


def linear_net(*forward: str):
    return net(
        ["self.linear1 = nn.Linear(64, 10)"],
        ["x = torch.flatten(x, 1)", *forward, "return self.linear1(x)"],
    )


def stepper_of(source):
    from app.source.compiled import make_module
    from app.training.stepper import Stepper
    from app.training.task import Task

    return Stepper(
        make_module(source), job(source).training, Task("CrossEntropyLoss", 10), "cpu"
    )


def test_a_shape_that_does_not_fit_names_its_node():
    source = net(
        ["self.linear1 = nn.Linear(64, 16)", "self.linear2 = nn.Linear(20, 10)"],
        ["x = self.linear1(x.flatten(1))", "return self.linear2(x)"],
    )
    event = failed(job(source))
    assert (event.kind, event.node, event.step) == ("shape", "linear2", 0)
    assert "mat1 and mat2 shapes cannot be multiplied" in event.message
    assert "return self.linear2(x)" in event.traceback


def test_a_log_of_zero_names_its_node_and_spoils_no_weights():
    import torch

    source = linear_net("x = x * 1.0", "x = torch.log(x)")
    control = Control()
    event = failed(job(source), control)
    assert (event.kind, event.node) == ("not finite", "f3")
    assert "step 1" in event.message and "torch.log(x)" in event.message
    assert all(torch.isfinite(value).all() for value in control.weights().values())


def test_a_learning_rate_that_is_too_large_ends_at_the_step_where_it_shows():
    events = run(
        job(
            epochs=50,
            optimizer=Choice("SGD", adam(lr=1e6).params),
            loss=Choice("MSELoss"),
        )
    )
    event = events[-1]
    assert isinstance(event, Failed) and event.kind == "not finite"
    assert "learning rate" in event.cure and f"step {event.step + 1}" in event.message
    assert sum(isinstance(e, StepDone) for e in events) == event.step


def test_a_mask_of_infinities_is_no_fault():
    source = linear_net(
        "x = torch.softmax(x.masked_fill(x < 0.1, float('-inf')) * 1.0, 1)",
        "x = torch.nan_to_num(x)",
    )
    assert not isinstance(run(job(source, epochs=1))[-1], Failed)


def test_the_origin_of_a_nan_is_found_behind_what_passes_it_on():
    import torch

    from app.training.monitoring.nonfinite import first_not_finite

    def found(source):
        torch.manual_seed(0)
        return first_not_finite(stepper_of(source), source, torch.rand(4, 1, 8, 8))

    origin = found(linear_net("x = F.relu(x - 2)", "x = x / x.sum()", "x = x + 1"))
    assert origin.node == "f3" and origin.operation == "aten.div"
    masked = linear_net(
        "x = torch.softmax(x.masked_fill(x < 0.1, float('-inf')), 1)",
        "x = x - 2",
        "x = x.sqrt()",
    )
    origin = found(masked)
    assert (origin.node, origin.operation) == ("f4", "aten.sqrt")
    assert found(linear_net()) is None


def test_of_a_batch_that_is_gone_nothing_is_claimed():
    import torch

    from app.training.monitoring.nonfinite import not_finite

    error = not_finite(
        stepper_of(linear_net()),
        linear_net(),
        float("nan"),
        7,
        later=torch.rand(9, 1, 8, 8),
    )
    assert (
        error.node is None
        and "for 9 other samples every layer's output is finite" in str(error)
    )


def test_weights_that_a_late_loss_finds_spoilt_blame_no_layer():
    import torch

    from app.training.monitoring.nonfinite import not_finite

    stepper = stepper_of(linear_net())
    with torch.no_grad():
        stepper.model.linear1.weight.fill_(float("nan"))
    later = torch.rand(9, 1, 8, 8)
    error = not_finite(stepper, linear_net(), float("nan"), 1, later=later)
    assert error.node is None and "previous step" not in str(error)
    assert "With not_finite set to skip" in str(error)


TWO_LINEAR = ["self.linear1 = nn.Linear(64, 16)", "self.linear2 = nn.Linear(16, 10)"]


def test_what_leaves_the_numbers_of_float16_alone_names_its_layer():
    # In float32 all of it is finite.
    source = net(
        TWO_LINEAR,
        ["x = self.linear1(x.flatten(1) * 1e6) * 1e-6", "return self.linear2(x)"],
    )
    assert not isinstance(run(job(source, epochs=1))[-1], Failed)
    event = failed(job(source, amp="float16"))
    assert (event.kind, event.node) == ("not finite", "linear1")
    assert "in float16, whose largest value is 65504" in event.message


def test_of_mixed_samples_those_are_run_again_that_the_net_was_given():
    # Samples of the digits are sixteenths; those that are mixed are not.
    mixing = "x = torch.where((x * 16 == (x * 16).round()).all(), x, x.log())"
    source = net(
        TWO_LINEAR,
        ["x = x.flatten(1)", mixing, "x = self.linear1(x)", "return self.linear2(x)"],
    )
    assert not isinstance(run(job(source, epochs=1))[-1], Failed)
    event = failed(job(source, mixup=0.4))
    assert (event.kind, event.node) == (
        "not finite",
        "f2",
    ) and "torch.where" in event.message


def test_dropout_falls_as_it_fell_behind_a_mixing():
    event = failed(job(BAD_NET, mixup=0.4, batch_size=2))
    assert (event.kind, event.node) == ("not finite", "f2")


def test_a_loss_that_alone_is_not_finite_blames_no_layer():
    event = failed(
        job(
            linear_net("x = x * 1e19"), loss=Choice("MSELoss"), optimizer=adam(lr=1e-30)
        )
    )
    assert (
        event.node is None
        and "Every layer's output is finite; the loss itself" in event.message
    )


def test_out_of_memory_suggests_a_smaller_batch():
    source = linear_net("x = self._allocate(x) if self.training else x")
    text = source.text + (
        "\n    def _allocate(self, x):\n"
        "        raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 20.00 GiB')\n"
    )
    event = failed(job(replace(source, text=text), batch_size=128))
    assert event.kind == "memory" and event.node == "f2" and "try 64" in event.cure


def test_the_cpu_runs_out_of_memory_in_its_own_words():
    event = failed(job(linear_net("x = x + torch.empty(2**58)[:1]")))
    assert (
        event.kind == "memory"
        and event.node == "f2"
        and "Reduce batch_size: it is 64" in event.cure
    )


def test_an_exception_at_a_later_step_keeps_the_steps_before_it():
    source = net(
        ["self.linear1 = nn.Linear(64, 10)", "self.calls = 0"],
        [
            "self.calls += 1",
            "assert self.calls < 6, 'enough'",
            "return self.linear1(x.flatten(1))",
        ],
    )
    control = Control()
    event = failed(job(source), control)
    assert (event.kind, event.step, event.epoch, event.node) == ("error", 5, 1, "f2")
    assert event.message == "Step 6 failed with AssertionError: enough"
    assert control.result.ending == "failed" and "linear1.weight" in control.weights()


def test_an_input_of_another_shape_than_the_data_says_both():
    source = replace(SMALL_NET, inputs=(InputSpec("x", (1, 28, 28)),))
    control = Control()
    event = failed(job(source), control)
    assert (
        event.kind == "job" and "1×28×28" in event.message and "1×8×8" in event.message
    )
    with pytest.raises(NoWeightsError):
        control.weights()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            net(
                ["self.linear1 = nn.Linear(64, 7)"],
                ["return self.linear1(x.flatten(1))"],
            ),
            "out_features to 10",
        ),
        (
            net(["self.conv1 = nn.Conv2d(1, 10, 3)"], ["return self.conv1(x)"]),
            "one value for each of the 10",
        ),
        (
            net(
                ["self.linear1 = nn.Linear(64, 10)"],
                ["return (self.linear1(x.flatten(1)),)"],
            ),
            "a tuple",
        ),
        (
            net(["self.linear1 = nn.Linear(64, 10)"], ["return x.flatten(1)[:, :10]"]),
            "nothing to train",
        ),
    ],
    ids=["classes", "rank", "tuple", "no gradient"],
)
def test_an_output_that_the_loss_cannot_use_names_the_last_node(source, words):
    event = failed(job(source))
    assert event.kind == "shape" and words in event.message
    assert event.node is not None


def test_a_last_batch_of_one_sample_says_what_to_change():
    source = net(
        ["self.norm1 = nn.BatchNorm1d(64)", "self.linear1 = nn.Linear(64, 10)"],
        ["x = self.norm1(x.flatten(1))", "return self.linear1(x)"],
    )
    # 1,438 samples to train on: three batches and one sample.
    event = failed(job(source, batch_size=479))
    assert (
        event.node == "norm1"
        and event.step == 3
        and "change batch_size by one" in event.cure
    )


def test_a_rate_beyond_float32_is_said_with_its_cure():
    event = failed(job(SMALL_NET, optimizer=Choice("Adam", adam(lr=1e40).params)))
    assert (
        "without overflow" in event.message and "Reduce the learning rate" in event.cure
    )
    event = failed(job(SMALL_NET, clip_value=1e40))
    assert (
        event.kind == "job"
        and "clip_value is 1e+40; it must be at most 3.4e+38" in event.message
    )


def test_one_hot_targets_are_never_broadcast():
    source = net(
        ["self.linear1 = nn.Linear(64, 1)"], ["return self.linear1(x.flatten(1))"]
    )
    assert failed(job(source, loss=Choice("MSELoss"))).kind == "shape"


def test_a_net_without_parameters_says_so_in_torchs_words():
    source = net(
        ["self.pool1 = nn.AvgPool2d(2)"], ["return self.pool1(x).flatten(1)[:, :10]"]
    )
    event = failed(job(source))
    assert event.kind == "job" and "empty parameter list" in event.message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epochs": 0}, "epochs is 0"),
        ({"batch_size": -1}, "batch_size is -1"),
        ({"seed": 2**70}, "seed is"),
        ({"device": "GPU 1"}, "device is “GPU 1”"),
        ({"device": "cpu; rm"}, "device is"),
        ({"data": DataConfig(source="nowhere")}, "no data source “nowhere”"),
        ({"optimizer": adam(lr=-1.0)}, "Invalid learning rate"),
        ({"optimizer": Choice("Lion")}, "no optimizer “Lion”"),
    ],
)
def test_a_setting_that_no_run_could_use_is_refused(change, words):
    event = failed(job(**change))
    assert words in event.message and event.kind in {"job", "data"}


def test_data_that_are_not_downloaded_say_so(tmp_path):
    source = replace(SMALL_NET, inputs=(InputSpec("x", (1, 28, 28)),))
    a_job = replace(
        job(source, data=DataConfig("torchvision.MNIST")), data_root=str(tmp_path)
    )
    event = failed(a_job)
    assert event.kind == "data" and "11.6 MB" in event.message


def test_a_loss_found_late_on_a_device_is_a_failure_too(monkeypatch):
    class Late(loop._Run):
        def _set_up(self, *given):
            started = super()._set_up(*given)
            self._at_once = self._reads = False
            return started

    monkeypatch.setattr(loop, "_Run", Late)
    event = failed(job(linear_net("x = torch.log(x)")))
    assert event.kind == "not finite" and "step 1" in event.message
