"""Rows 2 and 7 to 9 of the concepts that the program grew from: where a net runs, and what its forward may be."""

from __future__ import annotations

import ast

import torch
from msgspec.structs import replace
from torch import nn
from torch.nn import functional as F

from app.builder.analysis import analyse
from app.builder.graph import Node
from app.export.train_script import training_script
from app.preflight.preflight import job as job_of
from app.project import file
from app.project.project import Project
from app.source.compiled import make_module
from app.training.config import Choice, OutputLoss, TrainingConfig
from app.training.control import Control
from app.training.events import Finished, Started, StepDone
from app.training.loop import train
from app.training.setup.device import Device
from app.training.setup.devices import resolve
from app.util.resources import path as resource_path
from tests.data.test_mnist import files, put
from tests.data.test_torchvision import at_hand  # noqa: F401
from tests.support.builder_nets import net, wired
from tests.support.training_jobs import SMALL_NET, job, losses


def example(name: str) -> Project:
    return file.read(resource_path("examples", f"{name}.tape"))


def test_row_02_one_device_for_model_data_and_optimizer_that_falls_back_with_a_word():
    """device = torch.device("cuda" if torch.cuda.is_available() else "cpu"), said once"""
    card, cpu = Device("cuda:0", "H200"), Device("cpu", "CPU")
    assert (
        resolve("auto", (card, cpu)).id == resolve("cuda", (card, cpu)).id == "cuda:0"
    )
    assert resolve("auto", (cpu,)).id == "cpu" and resolve("auto", (cpu,)).note is None
    gone = resolve("cuda:0", (cpu,))
    assert (
        gone.id == "cpu"
        and gone.note
        == "cuda:0 is not available here, so the run uses the CPU. Choose one of: auto, cpu."
    )
    seen: list[set[str]] = []
    control = Control()
    for event in train(job(SMALL_NET, epochs=1, device="cuda:99"), control):
        if isinstance(event, Started):
            assert event.device == "cpu" and "cuda:99 is not available" in (
                event.device_note or ""
            )
        if isinstance(event, StepDone) and event.step == 2:
            control.call(
                lambda live: seen.append(
                    {str(p.device) for p in live.model.parameters()}
                    | {str(part.device) for part in live.data.batch(4)}
                    | {
                        str(v.device)
                        for state in live.optimizer.state.values()
                        for v in state.values()
                    }
                )
            )
    assert seen == [{"cpu"}]
    script = training_script(job(SMALL_NET))
    assert script.count('DEVICE = "cpu"') == 1 and "torch.accelerator" in script
    assert "cuda" not in ast.unparse(ast.parse(SMALL_NET.text)), (
        "the net itself names no device"
    )


def test_row_07_the_mnist_net_of_the_examples_repository_trains(tmp_path):
    """conv, pool, dropout2d, view, log_softmax, and nll_loss"""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
            self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
            self.conv2_drop = nn.Dropout2d()
            self.fc1 = nn.Linear(320, 50)
            self.fc2 = nn.Linear(50, 10)

        def forward(self, x):
            x = F.relu(F.max_pool2d(self.conv1(x), 2))
            x = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
            x = x.view(-1, 320)
            x = F.relu(self.fc1(x))
            x = F.dropout(x, training=self.training)
            x = self.fc2(x)
            return F.log_softmax(x, dim=1)

    project = example("MNIST net")
    analysis = analyse(project.graph)
    ours, theirs = make_module(analysis.source).eval(), Net().eval()
    theirs.load_state_dict(ours.state_dict())
    x = torch.rand(4, 1, 28, 28)
    torch.testing.assert_close(ours(x), theirs(x))
    assert (
        project.training.loss == Choice("NLLLoss")
        and project.data.source == "torchvision.MNIST"
    )
    put(tmp_path, files(60, 10))
    project = replace(
        project,
        training=replace(project.training, epochs=2, device="cpu", batch_size=16),
    )
    events = list(train(job_of(project, analysis, str(tmp_path))))
    assert isinstance(events[-1], Finished) and len(losses(events)) == 8


def test_row_07_the_cifar_10_net_of_the_tutorial_trains(at_hand):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 6, 5)
            self.pool = nn.MaxPool2d(2, 2)
            self.conv2 = nn.Conv2d(6, 16, 5)
            self.fc1 = nn.Linear(16 * 5 * 5, 120)
            self.fc2 = nn.Linear(120, 84)
            self.fc3 = nn.Linear(84, 10)

        def forward(self, x):
            x = self.pool(F.relu(self.conv1(x)))
            x = self.pool(F.relu(self.conv2(x)))
            x = x.view(-1, 16 * 5 * 5)
            x = F.relu(self.fc1(x))
            x = F.relu(self.fc2(x))
            return self.fc3(x)

    project = example("CIFAR-10 net")
    analysis = analyse(project.graph)
    ours, theirs = make_module(analysis.source).eval(), Net().eval()
    theirs.load_state_dict(ours.state_dict())
    x = torch.rand(4, 3, 32, 32)
    torch.testing.assert_close(ours(x), theirs(x))
    assert project.training.loss == Choice("CrossEntropyLoss")
    root = at_hand("torchvision.CIFAR10")
    project = replace(
        project,
        training=replace(project.training, epochs=1, device="cpu", batch_size=4),
    )
    events = list(train(job_of(project, analysis, str(root))))
    assert isinstance(events[-1], Finished) and losses(events)


def test_row_08_several_inputs_and_outputs_a_reused_module_and_a_hidden_state():
    """the recurrent net: hidden, output = rnn(data, hidden), with its own layers over several steps"""

    class RNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.i2h = nn.Linear(6 + 4, 4)
            self.h2o = nn.Linear(4, 3)

        def forward(self, data, last_hidden):
            hidden = self.i2h(torch.cat((data, last_hidden), 1))
            return hidden, self.h2o(hidden)

    graph = net(
        [
            ("input", "data", {"shape": (6,)}),
            ("input", "last_hidden", {"shape": (4,)}),
            ("torch.cat", "cat", {"dim": 1}),
            ("nn.Linear", "i2h", {"out_features": 4}),
            ("nn.Linear", "h2o", {"out_features": 3}),
            ("output", "hidden", {}),
            ("output", "out", {}),
        ],
        [
            ("data", "cat"),
            ("last_hidden", "cat"),
            ("cat", "i2h"),
            ("i2h", "h2o"),
            ("i2h", "hidden"),
            ("h2o", "out"),
        ],
    )
    analysis = analyse(graph)
    assert analysis.runnable, analysis.errors
    ours, theirs = make_module(analysis.source), RNN()
    theirs.load_state_dict(ours.state_dict())
    batch, told = torch.rand(5, 6), []
    for model in (ours, theirs):
        hidden, loss = torch.zeros(5, 4), torch.zeros(())
        for _ in range(4):  # the same module and the same weights at every step of time
            hidden, output = model(batch, hidden)
            loss = loss + F.cross_entropy(output, torch.arange(5) % 3)
        loss.backward()
        told.append([loss, *(parameter.grad for parameter in model.parameters())])
    for mine, other in zip(*told, strict=True):
        torch.testing.assert_close(mine, other)

    reused = net(
        [
            ("input", "x", {"shape": (1, 8, 8)}),
            ("nn.Flatten", "flatten", {}),
            ("nn.Linear", "fc", {"out_features": 64}),
            ("nn.Linear", "head", {"out_features": 10}),
            ("output", "digit", {}),
            ("output", "code", {}),
        ],
        [("x", "flatten"), ("flatten", "fc"), ("head", "digit")],
    )
    reused = reused.with_node(
        Node("again", "nn.Linear", "again", reused.nodes["fc"].params, shares="fc")
    )
    for source, target in (("fc", "again"), ("again", "head"), ("again", "code")):
        reused = wired(reused, source, target)
    rows = (
        OutputLoss("digit", Choice("CrossEntropyLoss")),
        OutputLoss("code", Choice("CrossEntropyLoss"), 0.1),
    )
    project = Project(
        graph=reused,
        training=TrainingConfig(epochs=1, device="cpu", batch_size=500, losses=rows),
    )
    analysis = analyse(reused)
    assert (
        analysis.source.text.count("nn.Linear(64, 64)") == 1
        and analysis.source.text.count("self.fc(") == 2
    )
    events = list(train(job_of(project, analysis)))
    assert isinstance(events[-1], Finished) and losses(events)[-1] < losses(events)[0]


def test_row_09_functional_and_module_forms_of_a_layer_are_the_same_layer():
    """nn.ReLU and F.relu, nn.MaxPool2d and F.max_pool2d, nn.Dropout and F.dropout(training=self.training)"""
    pairs = (
        ("nn.ReLU", "F.relu", {}, {}),
        ("nn.MaxPool2d", "F.max_pool2d", {"kernel_size": 2}, {"kernel_size": 2}),
        ("nn.LogSoftmax", "F.log_softmax", {"dim": 1}, {"dim": 1}),
        ("nn.Dropout", "F.dropout", {"p": 0.4}, {"p": 0.4}),
    )
    x = torch.randn(3, 2, 6, 6)
    for module, function, of_module, of_function in pairs:
        models = []
        for op, params in ((module, of_module), (function, of_function)):
            graph = net(
                [
                    ("input", "x", {"shape": (2, 6, 6)}),
                    (op, "layer", params),
                    ("output", "y", {}),
                ]
            )
            analysis = analyse(graph)
            assert analysis.runnable, analysis.errors
            assert (f"{op}(" in analysis.source.text) and (
                "self.layer" in analysis.source.text
            ) == (op == module)
            models.append(make_module(analysis.source))
        for mode in (True, False):
            given = []
            for model in models:
                torch.manual_seed(5)
                given.append(model.train(mode)(x))
            assert torch.equal(*given), f"{module}, {function}, train({mode})"
