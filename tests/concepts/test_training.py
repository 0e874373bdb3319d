"""Each concept of training that the notes behind this program speak of, as a reader of them would look for it.

`test_row_05_...` is row 5 of the list of concepts. The tests beside the rooms go deeper; these show that it is there.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from app.export.train_script import training_script
from app.training.choices import LOSSES, OPTIMIZERS
from app.training.config import Choice, ParameterGroup, TrainingConfig
from app.training.events import (
    EpochDone,
    Finished,
    GradientNorms,
    MemorySample,
    Noticed,
    Started,
    StepDone,
)
from app.training.history import History
from app.training.loop import train
from app.training.setup.initial_weights import initial_module
from app.training.stepper import Stepper
from app.training.task import Task
from app.util.frozen import FrozenMap
from tests.support.forked_python import run_alone
from tests.support.needs import needs
from tests.support.training_jobs import CONV_NET, SMALL_NET, job, losses, net, run


def stepper(source=SMALL_NET, **training) -> Stepper:
    config = TrainingConfig(device="cpu", **training)
    return Stepper(initial_module(source), config, Task(config.loss.name, 10), "cpu")


def one_step(made: Stepper, size: int = 8, last: bool = True) -> float:
    generator = torch.Generator().manual_seed(1)
    inputs, labels = (
        torch.rand(size, 1, 8, 8, generator=generator),
        torch.arange(size) % 10,
    )
    return float(made.take(inputs, labels, last).loss)


def test_row_01_options_decide_the_run(tmp_path):
    """batch size, epochs, lr, momentum, seed, device on or off, save interval, resume"""
    sgd = Choice("SGD", FrozenMap(lr=0.05, momentum=0.9))
    a_job = job(epochs=2, batch_size=100, optimizer=sgd, seed=3, save_every=10)
    told = list(train(a_job, folder=tmp_path))
    started, finished = told[0], told[-1]
    assert isinstance(started, Started) and (
        started.batch_size,
        started.seed,
        started.device,
    ) == (100, 3, "cpu")
    assert isinstance(finished, Finished) and finished.steps == 2 * 15
    assert {event.rate for event in told if isinstance(event, StepDone)} == {0.05}
    assert losses(told) != losses(
        run(job(epochs=2, batch_size=100, optimizer=sgd, seed=4))
    )
    middle = tmp_path / "step-20.pt"
    if not middle.exists():
        middle = next(path for path in sorted(tmp_path.glob("step-*.pt")))
    again = list(train(a_job, resume=middle))
    taken = losses(again)
    assert taken == losses(told)[-len(taken) :] and len(taken) in (10, 20)


def test_row_03_seeds_for_torch_numpy_random_and_the_deterministic_switches():
    first = losses(run(job(epochs=1, seed=7)))
    torch.manual_seed(99), random.seed(99), np.random.seed(99)
    assert losses(run(job(epochs=1, seed=7))) == first
    text = training_script(job(deterministic=True))
    for line in (
        "torch.manual_seed(",
        "np.random.seed(",
        "random.seed(",
        "torch.use_deterministic_algorithms(True)",
        "torch.backends.cudnn.benchmark = False",
    ):
        assert line in text
    seen = []
    for _event in train(job(epochs=1, deterministic=True)):
        seen.append(torch.are_deterministic_algorithms_enabled())
        assert not torch.backends.cudnn.benchmark
    assert any(seen) and not torch.are_deterministic_algorithms_enabled(), (
        "turned back when the run ends"
    )
    quick = job(epochs=1, cudnn_benchmark=True)
    assert "torch.backends.cudnn.benchmark = True" in training_script(quick)
    assert all(
        torch.backends.cudnn.benchmark
        for event in train(quick)
        if isinstance(event, StepDone)
    )
    assert not torch.backends.cudnn.benchmark
    both = training_script(job(deterministic=True, cudnn_benchmark=True))
    assert "benchmark = True" not in both, (
        "what is to be the same each time goes before what is quick"
    )


@pytest.mark.parametrize(
    "name", ["CrossEntropyLoss", "NLLLoss", "MSELoss", "BCEWithLogitsLoss", "HuberLoss"]
)
def test_row_10_a_loss_is_chosen_apart_from_the_net(name):
    assert name in LOSSES
    told = losses(run(job(epochs=1, loss=Choice(name))))
    assert len(told) == 23 and all(np.isfinite(told))
    assert f"nn.{name}(" in training_script(job(loss=Choice(name)))


@pytest.mark.parametrize(
    "name", [name for name in OPTIMIZERS if name not in ("SparseAdam", "Muon")]
)
def test_row_11_every_optimizer_trains(name):
    """LBFGS runs its closure; SparseAdam wants sparse gradients and Muon matrices alone."""
    made = stepper(optimizer=Choice(name))
    assert one_step(made) != one_step(made) and type(made.optimizer).__name__ == name


def test_row_11_parameter_groups_and_no_decay_on_biases_and_norms():
    adamw = Choice("AdamW", FrozenMap(lr=0.01, weight_decay=0.1))
    made = stepper(
        CONV_NET,
        optimizer=adamw,
        groups=(ParameterGroup("linear1", FrozenMap(lr=0.5)),),
        no_decay=True,
    )
    of = {
        id(parameter): group
        for group in made.optimizer.param_groups
        for parameter in group["params"]
    }
    found = {
        name: (of[id(p)]["lr"], of[id(p)]["weight_decay"])
        for name, p in made.model.named_parameters()
    }
    assert found["linear1.weight"] == (0.5, 0.1) and found["linear1.bias"] == (0.5, 0.0)
    assert found["conv1.weight"] == (0.01, 0.1) and found["conv1.bias"] == found[
        "norm1.weight"
    ] == (0.01, 0.0)


def test_row_13_accumulation_is_a_larger_batch():
    made = stepper(accumulate=2, optimizer=Choice("SGD", FrozenMap(lr=0.1)))
    before = [parameter.detach().clone() for parameter in made.model.parameters()]
    one_step(made, last=False)
    assert all(
        torch.equal(a, b) for a, b in zip(before, made.model.parameters(), strict=True)
    ), "it waits"
    one_step(made, last=False)
    assert not all(
        torch.equal(a, b) for a, b in zip(before, made.model.parameters(), strict=True)
    )


def test_row_13_gradients_are_clipped_by_value_and_by_norm():
    made = stepper(clip_value=0.001, optimizer=Choice("SGD", FrozenMap(lr=0.0)))
    one_step(made)
    assert max(float(p.grad.abs().max()) for p in made.model.parameters()) <= 0.00100001
    made = stepper(clip_norm=0.01, optimizer=Choice("SGD", FrozenMap(lr=0.0)))
    one_step(made)
    norms = torch.stack([p.grad.norm() for p in made.model.parameters()])
    assert float(norms.norm()) == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("amp", ["bfloat16", "float16"])
def test_row_30_mixed_precision(amp):
    made = stepper(CONV_NET, amp=amp)
    output = made.output(made.model, torch.rand(2, 1, 8, 8))
    assert output.dtype == getattr(torch, amp) and (made.scaler is not None) == (
        amp == "float16"
    )
    assert f"dtype=torch.{amp}" in training_script(job(amp=amp))


def test_row_30_gradient_checkpointing_gives_the_same_numbers_and_runs_the_forward_twice():
    assert losses(run(job(epochs=1, recompute=("linear1",)))) == losses(
        run(job(epochs=1))
    )
    made, calls = stepper(recompute=("linear1",)), []
    made.model.linear1.weight.register_hook(lambda _gradient: None)
    plain = torch.nn.functional.linear
    try:
        torch.nn.functional.linear = lambda *given: (calls.append(1), plain(*given))[1]
        one_step(made)
    finally:
        torch.nn.functional.linear = plain
    assert len(calls) == 3, "linear1 twice, linear2 once"


def test_row_30_channels_last_and_compile():
    made = stepper(CONV_NET, channels_last=True)
    seen = []
    made.model.conv1.register_forward_hook(
        lambda _m, given, _out: seen.append(given[0])
    )
    one_step(made)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    assert "torch.compile(" in training_script(job(compile=True))
    assert "memory_format=torch.channels_last" in training_script(
        job(channels_last=True)
    )


def test_row_31_cpu_threads_are_those_that_were_asked_for():
    told = [
        torch.get_num_threads()
        for event in train(job(epochs=1, threads=1))
        if isinstance(event, EpochDone)
    ]
    assert told == [1] and "torch.set_num_threads(1)" in training_script(job(threads=1))


# --- Rows of evaluation and of what is evaluated


def digits_project(**training):
    """The bundled net on the digits, as a person has it open."""
    from app.project import file as project_file
    from app.util.resources import path

    project = project_file.read(path("examples", "digits.tape"))
    return replace(
        project, training=replace(project.training, device="cpu", **training)
    )


def job_of(project):
    from app.builder.analysis import analyse
    from app.preflight import preflight

    analysis = analyse(project.graph)
    return preflight.job(project, analysis), analysis


def test_row_12_the_loop_is_the_one_of_the_note_and_its_losses_are_the_same_bit_for_bit():
    from app.data.loaders import load
    from app.source.compiled import make_module

    a_job = job(SMALL_NET, epochs=1, optimizer=Choice("SGD"))
    data = load(a_job.data)
    torch.manual_seed(a_job.training.seed)
    model = make_module(SMALL_NET)
    optimizer, criterion = (
        torch.optim.SGD(model.parameters()),
        torch.nn.CrossEntropyLoss(),
    )
    shuffle, by_hand = torch.Generator().manual_seed(a_job.training.seed), []
    model.train()
    for batch in torch.randperm(data.info.train_count, generator=shuffle).split(64):
        optimizer.zero_grad()
        loss = criterion(model(data.train.inputs[batch]), data.train.labels[batch])
        loss.backward()
        optimizer.step()
        by_hand.append(loss.item())
    assert [
        event.loss for event in train(a_job) if isinstance(event, StepDone)
    ] == by_hand
    text = training_script(a_job)
    for line in (
        "model.train()",
        "zero_grad(",
        "output = model(",
        "loss.backward()",
        ".step()",
        "loss.item()",
    ):
        assert line in text


def test_row_14_evaluation_is_in_eval_mode_without_gradients_and_gives_mean_loss_and_accuracy():
    from app.training.evaluation.evaluator import Evaluator

    evaluator = Evaluator(job(SMALL_NET))
    seen = []
    hook = evaluator.stepper.model.register_forward_hook(
        lambda module, inputs, output: seen.append(
            (module.training, output.requires_grad)
        )
    )
    found = evaluator.evaluate("validation")
    hook.remove()
    assert set(seen) == {(False, False)}, "dropout would make every answer another"
    inputs, labels = evaluator.data.val.inputs, evaluator.data.val.labels
    with torch.no_grad():
        output = evaluator.stepper.model.eval()(inputs)
    assert found.loss == pytest.approx(
        torch.nn.functional.cross_entropy(output, labels).item(), rel=1e-5
    )
    assert found.accuracy == pytest.approx(
        (output.argmax(1) == labels).double().mean().item()
    )
    augmented = evaluator.evaluate("validation", ("flip",))
    with torch.no_grad():
        mean = (
            output.softmax(1) + evaluator.stepper.model(inputs.flip(-1)).softmax(1)
        ) / 2
    assert (augmented.columns["called"][:, 0] == mean.argmax(1).numpy()).all(), (
        "test-time augmentation"
    )


@needs("weights")
def test_row_16_a_pretrained_backbone_stays_as_it_is_under_a_new_head_that_learns(
    tmp_path,
):
    from app.builder.catalog.catalog import catalog
    from app.export.weights import save_safetensors
    from app.features.weights import feature
    from app.project.weights import files
    from app.training.control import Control
    from app.training.evaluation.evaluator import Evaluator

    backbone = digits_project(epochs=1)
    first = Control()
    list(train(job_of(backbone)[0], first))
    body = {
        key: value
        for key, value in first.weights().items()
        if not key.startswith("fc2")
    }
    start = files.keep(lambda path: save_safetensors(body, path), "backbone", tmp_path)

    project = feature.freeze_all_but_last(
        feature.replace_last(backbone, catalog(), 12), catalog()
    )
    project = replace(
        project, training=replace(project.training, start=start, epochs=3)
    )
    a_job, _ = job_of(project)
    before, second = Evaluator(a_job).evaluate(), Control()
    list(train(a_job, second))
    learnt = second.weights()
    assert all(torch.equal(learnt[key], value) for key, value in body.items()), (
        "the frozen part"
    )
    assert learnt["fc2.weight"].shape[0] == 12, "the new head"
    after = Evaluator(a_job, learnt).evaluate()
    assert after.accuracy > before.accuracy and after.loss < before.loss


@needs("weights")
def test_row_17_parameters_are_counted_by_layer_in_total_and_those_that_are_trained():
    from app.builder.catalog.catalog import catalog
    from app.features.weights import feature
    from app.source.compiled import make_module

    project = feature.freeze_all_but_last(
        digits_project(epochs=1, max_steps=1), catalog()
    )
    a_job, analysis = job_of(project)
    model = make_module(a_job.source)
    by_layer = {
        project.graph.nodes[node].name: count
        for node, count in analysis.parameters.items()
        if count
    }
    theirs = {
        name: sum(p.numel() for p in module.parameters())
        for name, module in model.named_children()
    }
    assert by_layer == {name: count for name, count in theirs.items() if count}
    assert (
        analysis.total_parameters
        == sum(p.numel() for p in model.parameters())
        == 85_066
    )
    (started,) = [event for event in train(a_job) if isinstance(event, Started)]
    assert (
        started.parameters
        == sum(p.numel() for p in model.parameters() if p.requires_grad)
        == 650
    )


def test_row_18_weights_are_initialised_by_layer_and_set_by_hand():
    from app.builder.graph import Init
    from app.training.setup.initial_weights import initial_weights

    project = digits_project()
    ways = {
        "conv1": FrozenMap(
            weight=Init("normal_", FrozenMap(mean=0.0, std=0.5)), bias=Init("zeros_")
        ),
        "conv2": FrozenMap(
            weight=Init("kaiming_normal_"), bias=Init("constant_", FrozenMap(val=0.25))
        ),
        "fc1": FrozenMap(weight=Init("orthogonal_")),
        "fc2": FrozenMap(weight=Init("xavier_uniform_")),
    }
    nodes = {
        key: replace(node, inits=ways.get(node.name, node.inits))
        for key, node in project.graph.nodes.items()
    }
    project = replace(project, graph=replace(project.graph, nodes=FrozenMap(nodes)))
    found = initial_weights(job_of(project)[0].source, seed=0)
    assert (
        found["conv1.weight"].std().item() == pytest.approx(0.5, rel=0.15)
        and not found["conv1.bias"].any()
    )
    fan_in = found["conv2.weight"][0].numel()
    assert found["conv2.weight"].std().item() == pytest.approx(
        (2 / fan_in) ** 0.5, rel=0.05
    )
    assert (found["conv2.bias"] == 0.25).all(), "by hand"
    rows = found["fc1.weight"]
    assert torch.allclose(rows @ rows.T, torch.eye(len(rows)), atol=1e-4)
    assert found["fc2.weight"].abs().max().item() <= (6 / (64 + 10)) ** 0.5


def test_row_34_metrics_are_gathered_over_batches_and_not_averaged_over_them():
    from sklearn.metrics import f1_score

    from app.training.control import Control
    from app.training.evaluation.evaluator import Evaluator

    a_job, control = (
        job(SMALL_NET, epochs=2, batch_size=50, metrics=("f1", "auroc")),
        Control(),
    )
    last = [event for event in train(a_job, control) if isinstance(event, EpochDone)][
        -1
    ]
    evaluator = Evaluator(a_job, control.weights())
    inputs, labels = evaluator.data.val.inputs, evaluator.data.val.labels
    with torch.no_grad():
        called = evaluator.stepper.model(inputs).argmax(1)
    whole = f1_score(labels, called, average="macro")
    parts = [
        f1_score(a, b, average="macro")
        for a, b in zip(labels.split(50), called.split(50), strict=True)
    ]
    assert dict(last.metrics)["f1"] == pytest.approx(whole, abs=1e-6)
    assert whole != pytest.approx(sum(parts) / len(parts), abs=1e-4)


def test_row_15_checkpoints_hold_model_optimizer_and_losses_and_a_run_resumes_from_one(
    tmp_path,
):
    from app.training.checkpoints import checkpoint
    from app.training.control import Control

    a_job, control, first = job(epochs=2, save_every=10), Control(), []
    for event in train(a_job, control, folder=tmp_path):
        first.append(event)
        if isinstance(event, StepDone) and event.step == 27:
            control.stop()
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "best.pt",
        "last.pt",
        "step-00000010.pt",
        "step-00000020.pt",
    ]
    # Plain state_dicts, which torch reads anywhere without running anything of the file.
    state = torch.load(tmp_path / "last.pt", weights_only=True, map_location="cpu")
    assert set(state) >= {
        "model",
        "optimizer",
        "schedule",
        "scaler",
        "generators",
        "position",
    }
    assert state["model"].keys() == initial_module(SMALL_NET).state_dict().keys()
    assert (
        set(state["optimizer"]) == {"state", "param_groups"}
        and state["position"]["step"] == 27
    )
    rest = list(train(a_job, resume=checkpoint.newest(tmp_path)))
    assert losses(first) + losses(rest) == losses(run(job(epochs=2)))


def test_row_33_tensorboard_gets_scalars_in_groups_images_histograms_and_the_graph(
    tmp_path,
):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from app.runs import tensorboard

    a_job = job(CONV_NET, epochs=1, batch_size=256)
    events = tensorboard.watch(tmp_path, a_job)
    told = list(train(a_job, folder=tmp_path / "checkpoints"))
    events.write(told)
    events.close()
    found = EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    tags = found.Tags()
    assert {
        "loss/train",
        "loss/validation",
        "accuracy/train",
        "accuracy/validation",
    } <= set(tags["scalars"])
    assert (
        "weights/conv1.weight" in tags["histograms"]
        and "batch/samples" in tags["images"]
        and tags["graph"]
    )
    values = [scalar.value for scalar in found.Scalars("loss/train")]
    assert values == pytest.approx(losses(told), abs=1e-6)


# --- Rows of what is seen live


def kept_by(init: str, forward: str) -> list[str]:
    """What is said of a net with this line in `__init__` and this one in `forward`."""
    source = net(
        ["self.linear1 = nn.Linear(64, 10)", init],
        ["x = self.linear1(x.flatten(1))", forward, "return x"],
    )
    return [
        event.message
        for event in run(job(source, max_steps=2))
        if isinstance(event, Noticed)
    ]


def test_row_19_gradients_are_looked_at_by_layer_and_retained_ones_too():
    from app.data.loaders import load
    from app.source.compiled import make_module

    a_job = job(SMALL_NET, max_steps=1)
    told = next(event for event in run(a_job) if isinstance(event, GradientNorms))
    data = load(a_job.data)
    torch.manual_seed(a_job.training.seed)
    model = make_module(SMALL_NET)
    batch = torch.randperm(
        data.info.train_count, generator=torch.Generator().manual_seed(0)
    )[:64]
    hidden = []

    def retain(_module, _inputs, output):
        output.retain_grad()
        hidden.append(output)

    model.linear1.register_forward_hook(retain)
    torch.nn.functional.cross_entropy(
        model(data.train.inputs[batch]), data.train.labels[batch]
    ).backward()
    for layer, norm in zip(told.layers, told.norms, strict=True):
        own = torch.cat(
            [p.grad.flatten() for p in model.get_submodule(layer).parameters()]
        )
        assert norm == pytest.approx(own.norm().item(), rel=1e-5)
    # The same for a value in between: the gradient of the output explains that of the bias.
    assert torch.allclose(hidden[0].grad.sum(0), model.linear1.bias.grad)
    shown = History()
    shown.extend(run(job(SMALL_NET, epochs=1)))
    assert (
        shown.gradients.matrix().shape[0] == 2 and (shown.gradients.matrix() > 0).all()
    )


@needs("layer")
def test_row_28_values_of_a_layer_in_between_and_its_filters_are_seen_as_pictures(
    qtbot,
):
    from app.features.layer.cards import InsideCard
    from app.training.monitoring.activations import of_weights

    found = of_weights(job(CONV_NET), None, "conv1", 3, "fresh weights")
    assert found.channels.pictures.shape == (
        16,
        8,
        8,
    ) and found.filters.pictures.shape == (16, 3, 3)
    card = InsideCard()
    qtbot.addWidget(card)
    card.show_inside(found)
    assert card.grid.count == 16 and card.picture.count == 1
    card.what.set_value("filters")
    assert card.grid.count == 16 and "conv1.weight: 16×1×3×3" in card.heading.texts[1]


def test_row_29_memory_is_told_while_a_run_goes_on_by_layer_and_estimated_before_it(
    tmp_path,
):
    from app.telemetry.gpu import Allocator
    from app.training.monitoring import measured_memory

    events = run(job(SMALL_NET, epochs=1))
    assert [event.resident for event in events if isinstance(event, MemorySample)][
        0
    ] > 2**20
    before = measured_memory.before(job(CONV_NET), "cpu")
    whole = before.step.total
    assert (
        whole.parameters > 0 < whole.gradients
        and whole.activations > whole.optimizer > whole.parameters
    )
    assert {"conv1", "norm1", "conv2", "linear1"} <= {
        row.layer for row in before.step.layers
    }
    assert '"activations"' in before.to_json()
    assert Allocator(allocated=3, reserved=8, peak=5, split=2).fragmentation == 0.25


def test_row_35_a_tensor_that_is_kept_with_its_graph_is_found_and_said():
    (said,) = kept_by("self.seen = None", "self.seen = x.sum()")
    assert "seen is stored with its autograd graph" in said and "seen.detach()" in said
    assert not kept_by("self.seen = None", "self.seen = x.sum().item()")


def test_row_35_an_alias_instead_of_a_clone_is_found_and_said():
    (said,) = kept_by("self.start = self.linear1.weight.data", "pass")
    assert (
        "shares its memory" in said
        and "start.clone()" in said
        and "linear1.weight" in said
    )
    assert not kept_by("self.start = self.linear1.weight.data.clone()", "pass")


def test_row_35_softmax_before_cross_entropy_is_found_said_and_taken_out():
    from app.builder.analysis import analyse
    from app.builder.catalog.catalog import catalog
    from app.builder.diagnostics.problems import Cure, InsertBefore, apply_cure
    from app.preflight import preflight

    project = digits_project()
    output = next(
        key for key, node in project.graph.nodes.items() if node.op == "output"
    )
    soft = apply_cure(
        project.graph,
        catalog(),
        Cure("", (InsertBefore(output, "input", "nn.Softmax"),)),
    )
    soft_project = replace(project, graph=soft)
    (said,) = preflight.problems(soft_project, analyse(soft))
    assert "CrossEntropyLoss both apply softmax" in said.message
    assert not preflight.problems(project, analyse(project.graph))
    cured = apply_cure(soft, catalog(), said.cures[0])
    assert not preflight.problems(replace(project, graph=cured), analyse(cured))


def test_row_35_the_gradients_of_a_step_are_those_of_its_batch_alone():
    """A missing zero_grad would add them up from step to step."""
    made = stepper(optimizer=Choice("SGD", FrozenMap(lr=0.0)))
    made.model.eval()
    one_step(made)
    first = [p.grad.clone() for p in made.model.parameters()]
    one_step(made)
    assert all(
        torch.equal(a, p.grad)
        for a, p in zip(first, made.model.parameters(), strict=True)
    )
    assert "optimizer.zero_grad(" in training_script(job())


def test_row_36_time_on_a_device_is_that_of_its_events_and_nothing_waits_for_it(
    monkeypatch,
):
    from app.telemetry.throttle import Meter
    from tapedeck import devices

    class Event:
        """As `torch.cuda.Event`: it has passed when the device gets there, long after the host."""

        made: list = []
        passed = False

        def __init__(self):
            self.made.append(self)

        def query(self):
            return Event.passed

        def elapsed_time(self, later):
            return 250.0 * (
                self.made.index(later) - self.made.index(self)
            )  # milliseconds

        def synchronize(self):
            raise AssertionError("measuring must not wait")

    monkeypatch.setattr(devices, "event", lambda _device: Event())
    meter = Meter("cuda:0", every=0.0, share=0.02)
    with meter:
        pass  # handed over to the device, which has not begun
    meter.schedule_next()
    meter.settle()
    host, due = meter.seconds, meter.due
    assert host < 0.1, "the clock of the host sees the handing over alone"
    Event.passed = True
    meter.settle()
    assert meter.seconds == pytest.approx(host + 0.25) and meter.due == pytest.approx(
        due + 0.25 / 0.02
    )


def test_row_31_cuda_launch_blocking_is_set_for_a_run_in_a_process_of_its_own(
    monkeypatch,
):
    from app.engine import pool, run_process
    from app.engine.placement import RunPlacement

    given = {}

    def start(_entry, extra):
        given.update(extra)
        raise OSError("enough is seen")

    monkeypatch.setattr(pool, "start", start)
    list(run_process.train(job(), place=RunPlacement(1, launch_blocking=True)))
    assert given == {"CUDA_LAUNCH_BLOCKING": "1"}


def test_row_32_several_devices_are_taken_by_distributed_data_parallel(tmp_path):
    """The exported script as it is, under torchrun: each of two processes takes half of every batch.

    DistributedDataParallel is taken, and not DataParallel, which the notes name too: that is one process whose threads
    wait for each other's interpreter lock, it copies the net to every device anew for each batch, and torch's own
    documentation advises against it.
    """
    import json

    source = net(
        ["self.linear1 = nn.Linear(64, 16)", "self.linear2 = nn.Linear(16, 10)"],
        ["x = F.relu(self.linear1(x.flatten(1)))", "return self.linear2(x)"],
    )
    a_job = job(source, epochs=1)
    text = training_script(a_job)
    assert (
        "nn.parallel.DistributedDataParallel(model)" in text
        and "nn.DataParallel" not in text
    )
    (tmp_path / "model.py").write_text(source.text)
    (tmp_path / "train.py").write_text(text)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = run_alone(*torchrun, "train.py", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    two = [line["loss"] for line in told if line["event"] == "step"]
    assert two == pytest.approx(losses(list(train(a_job))), abs=1e-6)
    assert [line["event"] for line in told].count("started") == 1 and (
        tmp_path / "trained" / "weights.pt"
    ).is_file()


def test_row_30_activations_in_place_and_the_profiler(monkeypatch):
    """nn.ReLU(inplace=True) gives the same numbers; torch.profiler sees the operations of a run, and changes none"""
    from torch.profiler import ProfilerActivity, profile

    from app.training.control import Control
    from app.training.monitoring import answers
    from app.training.run_requests import ProfileStep

    monkeypatch.setattr(
        answers, "MOST", 1000
    )  # which are the largest is the machine's affair
    init = [
        "self.fc1 = nn.Linear(64, 16)",
        "self.act = nn.ReLU({})",
        "self.fc2 = nn.Linear(16, 10)",
    ]
    forward = ["x = self.fc1(x.flatten(1))", "x = self.act(x)", "return self.fc2(x)"]
    plain, in_place = (
        net([line.format(text) for line in init], forward)
        for text in ("", "inplace=True")
    )
    wanted = losses(run(job(plain, epochs=1, batch_size=300)))
    assert losses(run(job(in_place, epochs=1, batch_size=300))) == wanted
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        assert losses(run(job(plain, epochs=1, batch_size=300))) == wanted
    counts = {event.key: event.count for event in seen.key_averages()}
    assert counts["aten::linear"] >= 2 * len(wanted) and counts["ReluBackward0"] == len(
        wanted
    )
    # And by the user's own order, to a run that goes on.
    control = Control()
    asked = control.call(ProfileStep())
    assert losses(list(train(job(plain, epochs=1, batch_size=300), control))) == wanted
    rows = {row.name: row.calls for row in asked.result().rows}
    assert rows["aten::addmm"] == 2 and rows["ReluBackward0"] == 1
