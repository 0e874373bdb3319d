"""Small nets and runs for the tests of training and export, written by hand as code generation writes them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from app.builder.analysis import analyse
from app.builder.catalog.catalog import catalog
from app.data.config import DataConfig
from app.project import file
from app.source.generated import InputSpec, Source
from app.training.config import (
    INPUT,
    Choice,
    OutputLoss,
    ParameterGroup,
    Schedule,
    TrainingConfig,
)
from app.training.events import Event, StepDone
from app.training.job import Job
from app.training.loop import train
from app.util.frozen import FrozenMap
from app.util.resources import path as resource
from tests.support.taken_device import DEVICE

HEAD = """\
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
"""


def net(
    init: list[str], forward: list[str], shape: tuple[int, ...] = (1, 8, 8)
) -> Source:
    """A source whose nodes bear the names of the attributes and `f1`, `f2` ... for the lines of `forward`."""
    first = HEAD.count("\n") + 1
    body = [f"        {line}" for line in init]
    text = HEAD + "\n".join(
        [*body, "", "    def forward(self, x: torch.Tensor) -> torch.Tensor:", ""]
    )
    start = text.count("\n") + 1
    text += "".join(f"        {line}\n" for line in forward)
    modules = {
        line.split(" ")[0].removeprefix("self."): first + i
        for i, line in enumerate(init)
    }
    lines = {name: (number,) for name, number in modules.items()}
    for index, line in enumerate(forward):
        name = next(
            (name for name in modules if f"self.{name}(" in line), f"f{index + 1}"
        )
        lines[name] = (*lines.get(name, ()), start + index)
    return Source(
        text,
        (InputSpec("x", shape),),
        ("y",),
        FrozenMap(lines),
        FrozenMap({name: name for name in modules}),
    )


CONV_NET = net(
    [
        "self.conv1 = nn.Conv2d(1, 16, 3, padding=1)",
        "self.norm1 = nn.BatchNorm2d(16)",
        "self.conv2 = nn.Conv2d(16, 32, 3, padding=1)",
        "self.drop1 = nn.Dropout(0.2)",
        "self.linear1 = nn.Linear(512, 10)",
    ],
    [
        "x = self.conv1(x)",
        "x = F.relu(self.norm1(x))",
        "x = F.relu(self.conv2(x))",
        "x = F.max_pool2d(x, 2)",
        "x = torch.flatten(x, 1)",
        "x = self.drop1(x)",
        "return self.linear1(x)",
    ],
)

SMALL_NET = net(
    [
        "self.linear1 = nn.Linear(64, 16)",
        "self.drop1 = nn.Dropout(0.5)",
        "self.linear2 = nn.Linear(16, 10)",
    ],
    [
        "x = F.relu(self.linear1(x.flatten(1)))",
        "x = self.drop1(x)",
        "return self.linear2(x)",
    ],
)


# Where dropout leaves nothing of a sample, it is divided by nought.
BAD_NET = net(
    ["self.drop1 = nn.Dropout(0.96)", "self.linear1 = nn.Linear(64, 10)"],
    [
        "x = self.drop1(x.flatten(1))",
        "x = x / x.sum(1, keepdim=True)",
        "return self.linear1(x)",
    ],
)

# Which digit it is, and the picture again.
TWO_OUTPUTS = replace(
    net(
        [
            "self.linear1 = nn.Linear(64, 16)",
            "self.drop1 = nn.Dropout(0.2)",
            "self.digit = nn.Linear(16, 10)",
            "self.again = nn.Linear(16, 64)",
        ],
        [
            "x = self.drop1(F.relu(self.linear1(x.flatten(1))))",
            "y = self.again(x)",
            "return self.digit(x), y.reshape(-1, 1, 8, 8)",
        ],
    ),
    outputs=("digit", "again"),
)
TWO_LOSSES = (
    OutputLoss("digit", Choice("CrossEntropyLoss", FrozenMap(label_smoothing=0.1))),
    OutputLoss("again", Choice("MSELoss"), 0.5, INPUT),
)

# Ways of taking a step, by what they are called.
SGD = Choice("SGD", FrozenMap(lr=0.05, momentum=0.9, weight_decay=1e-4))
COSINE = Schedule(Choice("CosineAnnealingLR", FrozenMap(T_max=50)), "step", 5)
SETTINGS: dict[str, dict[str, Any]] = {
    "SGD with momentum": {"optimizer": SGD, "no_decay": True},
    "AdamW, cosine after a warmup": {"optimizer": Choice("AdamW"), "schedule": COSINE},
    "LBFGS": {
        "optimizer": Choice("LBFGS", FrozenMap(lr=0.1, max_iter=3)),
        "batch_size": 256,
    },
    "accumulation and clipping": {
        "accumulate": 3,
        "clip_norm": 0.5,
        "clip_value": 0.1,
        "batch_size": 48,
    },
    "AMP with bfloat16": {"amp": "bfloat16"},
    "a running mean, mixup, groups": {
        "ema": 0.9,
        "mixup": 0.4,
        "groups": (ParameterGroup("linear1", FrozenMap(lr=0.01)),),
        "schedule": Schedule(
            Choice("ReduceLROnPlateau", FrozenMap(patience=0, threshold=0.5)), "epoch"
        ),
    },
    "recomputed in backward": {"recompute": ("linear1",), "clip_norm": 1.0},
}


def job(
    source: Source = SMALL_NET, *, data: DataConfig = DataConfig(), **training: Any
) -> Job:
    """A run on the digits; three epochs on the device of the tests unless told otherwise."""
    return Job(
        source, data, replace(TrainingConfig(epochs=3, device=DEVICE), **training)
    )


def adam(**params: Any) -> Choice:
    return Choice("Adam", FrozenMap(params))


def run(a_job: Job) -> list[Event]:
    return list(train(a_job))


def losses(events: list[Event]) -> list[float]:
    return [event.loss for event in events if isinstance(event, StepDone)]


def example(name: str, count: int, **settings: Any) -> Job:
    """The run of a bundled example with generated data, on fewer samples."""
    project = file.read(resource("examples", f"{name}.tape"))
    data = replace(project.data, options=FrozenMap(count=count))
    source = analyse(project.graph, catalog()).source
    return Job(
        source, data, replace(project.training, epochs=2, device=DEVICE, **settings)
    )
