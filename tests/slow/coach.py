"""What the coach says of 40 ill runs and of 40 healthy ones: short real runs. Every ill one is named, no healthy one.

    python -m tests.slow.coach [NAME ...] [--seed N]

Prints a line for each run, and ends with 1 where an ill one is not named rightly or a healthy one is touched.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from app.builder.analysis import analyse
from app.builder.catalog.catalog import catalog
from app.builder.graph import Init
from app.data.config import DataConfig
from app.data.loaders import read_spec
from app.features.coach.judgement import judge, setup_of
from app.features.coach.run_report import remark_on
from app.features.coach.values import Remark
from app.preflight import preflight
from app.project.project import Project
from app.training.config import Choice, Schedule, TrainingConfig
from app.training.control import Control
from app.training.events import EpochDone
from app.training.history import History
from app.training.loop import train
from app.util.frozen import FrozenMap
from tests.support.builder_nets import Row, net

Table = tuple[np.ndarray, np.ndarray]


class Case(Struct, frozen=True):
    """A run: `kind` is that of the remark that it deserves, "" for a healthy one."""

    name: str
    kind: str
    rows: Sequence[Row]
    data: Callable[[Path], DataConfig]
    training: dict[str, Any]
    inits: dict[str, dict[str, Init]] = {}


# --- Data


def digits(_folder: Path) -> DataConfig:
    return DataConfig()


def known(source: str, **options: Any) -> Callable[[Path], DataConfig]:
    return lambda _folder: DataConfig(source, options=FrozenMap(options))


SEED = (
    0  # added to that of all data and runs, for others than the bounds were made with
)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(100 * SEED + seed)


def table(make: Callable[[], Table], **options: Any) -> Callable[[Path], DataConfig]:
    """A CSV with the columns a, b, c ... and the target y."""

    def write(folder: Path) -> DataConfig:
        inputs, targets = make()
        path = folder / "table.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            names = [f"c{number}" for number in range(inputs.shape[1])]
            writer.writerow([*names, "y"])
            for row, target in zip(inputs.tolist(), targets.tolist(), strict=True):
                writer.writerow([*row, target])
        chosen = FrozenMap({"target": "y", **options})
        return DataConfig("file.csv", path=str(path), options=chosen)

    return write


def blobs(
    counts: Sequence[int], apart: float, columns: int = 4, seed: int = 0
) -> Callable[[], Table]:
    """Clouds of points, a class each, whose middles are so far from one another."""

    def make() -> Table:
        draw = generator(seed)
        middles = apart * np.linalg.qr(draw.normal(size=(columns, columns)))[0]
        inputs = [
            middle + draw.normal(size=(count, columns))
            for middle, count in zip(middles, counts, strict=False)
        ]
        labels = np.repeat([f"k{number}" for number in range(len(counts))], counts)
        return np.concatenate(inputs), labels

    return make


def houses(
    count: int = 400, scale: float = 1.0, noise: float = 0.2, seed: int = 0
) -> Callable[[], Table]:
    """Values that depend on four columns."""

    def make() -> Table:
        draw = generator(seed)
        inputs = draw.normal(size=(count, 4))
        value = inputs @ [1.0, -0.5, 0.3, 0.0] + 0.4 * inputs[:, 0] * inputs[:, 1]
        return inputs, scale * (
            value + noise * draw.normal(size=count) + 3 * (scale > 1)
        )

    return make


def of_digits(count: int | None = None) -> Table:
    from sklearn.datasets import load_digits

    found = load_digits()
    labels = np.array([f"d{label}" for label in found.target])
    return found.data[:count], labels[:count]


def shuffled(make: Callable[[], Table], seed: int = 1) -> Callable[[], Table]:
    def made() -> Table:
        inputs, targets = make()
        return inputs, generator(seed).permutation(targets)

    return made


def repeated(
    make: Callable[[], Table], times: int, share: float = 1.0
) -> Callable[[], Table]:
    """The rows several times over, or some of them."""

    def made() -> Table:
        inputs, targets = make()
        few = generator(2).permutation(len(inputs))[: round(share * len(inputs))]
        more = [few] * (times - 1)
        return (
            np.concatenate([inputs, *(inputs[rows] for rows in more)]),
            np.concatenate([targets, *(targets[rows] for rows in more)]),
        )

    return made


def mislabelled(make: Callable[[], Table], share: float) -> Callable[[], Table]:
    def made() -> Table:
        inputs, labels = make()
        draw = generator(3)
        wrong = draw.random(len(labels)) < share
        return inputs, np.where(wrong, draw.permutation(labels), labels)

    return made


def coded(count: int = 600) -> Table:
    """Rows of few codes, which repeat by themselves."""
    draw = generator(4)
    inputs = draw.integers(0, 3, size=(count, 4))
    odds = inputs.sum(1) + 0.5 * draw.normal(size=count)
    return inputs, np.where(odds > 4, "yes", "no")


# --- Nets


def mlp(
    inputs: int | tuple[int, ...],
    outputs: int,
    *hidden: int,
    activation: str = "nn.ReLU",
    between: Sequence[tuple[str, dict[str, Any]]] = (),
    last: tuple[str, dict[str, Any]] | None = None,
) -> list[Row]:
    """A multilayer perceptron; `between` stand after each activation, `last` at the end."""
    shape = (inputs,) if isinstance(inputs, int) else inputs
    rows: list[Row] = [("input", "x", {"shape": shape})]
    if len(shape) > 1:
        rows.append(("nn.Flatten", "flat", {}))
    width = int(np.prod(shape))
    for number, size in enumerate(hidden, 1):
        rows.append(
            ("nn.Linear", f"fc{number}", {"in_features": width, "out_features": size})
        )
        rows.append((activation, f"act{number}", {}))
        rows += [
            (op, f"more{number}_{at}", params)
            for at, (op, params) in enumerate(between)
        ]
        width = size
    rows.append(("nn.Linear", "head", {"in_features": width, "out_features": outputs}))
    if last is not None:
        rows.append((last[0], "last", last[1]))
    return [*rows, ("output", "y", {})]


def cnn(activation: str = "nn.ReLU", norm: bool = False) -> list[Row]:
    """A small convolutional net for the digits."""
    rows: list[Row] = [("input", "x", {"shape": (1, 8, 8)})]
    for number, (before, after) in enumerate(((1, 8), (8, 16)), 1):
        sizes = {"in_channels": before, "out_channels": after}
        rows.append(
            ("nn.Conv2d", f"conv{number}", {**sizes, "kernel_size": 3, "padding": 1})
        )
        if norm:
            rows.append(("nn.BatchNorm2d", f"norm{number}", {"num_features": after}))
        rows.append((activation, f"act{number}", {}))
        rows.append(("nn.MaxPool2d", f"pool{number}", {"kernel_size": 2}))
    rows.append(("nn.Flatten", "flat", {}))
    rows.append(("nn.Linear", "head", {"in_features": 64, "out_features": 10}))
    return [*rows, ("output", "y", {})]


DIGITS = (1, 8, 8)
SOFTMAX, LOG_SOFTMAX = ("nn.Softmax", {"dim": 1}), ("nn.LogSoftmax", {"dim": 1})


def constant(value: float) -> Init:
    return Init("constant_", FrozenMap(val=value))


def settings(
    optimizer: str, lr: float | None = None, epochs: int = 15, **more: Any
) -> dict[str, Any]:
    params = more.pop("params", {})
    rate = {} if lr is None else {"lr": lr}
    return {
        "optimizer": Choice(optimizer, FrozenMap({**rate, **params})),
        "epochs": epochs,
        "batch_size": 64,
        **more,
    }


def values(*arguments: Any, **more: Any) -> dict[str, Any]:
    """Settings for values to predict."""
    return settings(*arguments, **{"loss": Choice("MSELoss"), **more})


def with_loss(name: str, *arguments: Any, **more: Any) -> dict[str, Any]:
    return settings(*arguments, loss=Choice(name), **more)


MOONS = known("made.moons", count=600)
NOISY_MOONS = known("made.moons", count=600, noise=0.35)
IRIS, WINE, CANCER = map(
    known, ("sklearn.iris", "sklearn.wine", "sklearn.breast_cancer")
)
FLOWERS = mlp(4, 3, 16)
POINTS = mlp(2, 2, 16, 16)
PIXELS = mlp(DIGITS, 10, 64)
WIDE = mlp(20, 2, 256, 256)
PRICE = mlp(4, 1, 32)

ILL: tuple[Case, ...] = (
    # Rates
    Case("rate: moons, SGD 100", "diverging", POINTS, MOONS, settings("SGD", 100.0)),
    Case("rate: moons, SGD 1e12", "diverging", POINTS, MOONS, settings("SGD", 1e12)),
    Case(
        "rate: digits, Adam 10", "diverging", PIXELS, digits, settings("Adam", 10.0, 6)
    ),
    Case("rate: iris, SGD 50", "diverging", FLOWERS, IRIS, settings("SGD", 50.0, 30)),
    Case(
        "rate: values, SGD 2",
        "diverging",
        PRICE,
        table(houses()),
        values("SGD", 2.0, 10),
    ),
    Case(
        "rate: cancer, SGD 100",
        "diverging",
        mlp(30, 2, 32),
        CANCER,
        settings("SGD", 100.0, 10),
    ),
    Case(
        "rate: values, momentum",
        "diverging",
        PRICE,
        table(houses(seed=5)),
        values("SGD", 0.3, 20, params={"momentum": 0.99}),
    ),
    Case(
        "rate: digits, conv, SGD 20",
        "diverging",
        cnn(),
        digits,
        settings("SGD", 20.0, 6),
    ),
    Case("rate: digits, Adam 1e-9", "stuck", PIXELS, digits, settings("Adam", 1e-9, 8)),
    Case("rate: digits, SGD 1e-8", "stuck", PIXELS, digits, settings("SGD", 1e-8, 8)),
    Case("rate: moons, Adam 1e-8", "stuck", POINTS, MOONS, settings("Adam", 1e-8, 20)),
    Case(
        "rate: values, SGD 1e-7",
        "stuck",
        PRICE,
        table(houses(seed=6)),
        values("SGD", 1e-7, 20),
    ),
    # A target without scale
    Case(
        "scale: prices, Adam",
        "scale",
        PRICE,
        table(houses(scale=1e5)),
        values("Adam", 1e-3, 20),
    ),
    Case(
        "scale: prices, SGD",
        "scale",
        PRICE,
        table(houses(scale=1e5)),
        values("SGD", 1e-2, 20),
    ),
    Case(
        "scale: hundreds, Adam",
        "scale",
        PRICE,
        table(houses(scale=200)),
        values("Adam", 1e-3, 20),
    ),
    Case(
        "scale: prices, L1",
        "scale",
        PRICE,
        table(houses(scale=1e4)),
        values("Adam", 1e-3, 20, loss=Choice("L1Loss")),
    ),
    # Leaks
    Case(
        "leak: rows twice",
        "leak",
        mlp(4, 3, 32),
        table(repeated(blobs([150] * 3, 2.0), 2)),
        settings("Adam", 5e-3, 15),
    ),
    Case(
        "leak: a fifth twice",
        "leak",
        mlp(4, 2, 16),
        table(repeated(blobs([200] * 2, 3.0), 2, 0.3)),
        settings("Adam", 5e-3, 15),
    ),
    Case(
        "leak: values, rows three times",
        "leak",
        PRICE,
        table(repeated(houses(), 3)),
        values("Adam", 5e-3, 15),
    ),
    Case(
        "leak: digits twice",
        "leak",
        mlp(64, 10, 32),
        table(repeated(lambda: of_digits(500), 2)),
        settings("Adam", 5e-3, 10),
    ),
    # Dead units
    Case(
        "dead: digits, bias -20",
        "dead",
        PIXELS,
        digits,
        settings("Adam", 1e-3, 8),
        {"fc1": {"bias": constant(-20.0)}},
    ),
    Case(
        "dead: moons, second layer",
        "dead",
        POINTS,
        MOONS,
        settings("Adam", 1e-3, 20),
        {"fc2": {"bias": constant(-20.0)}},
    ),
    Case(
        "dead: conv, bias -9",
        "dead",
        cnn(),
        digits,
        settings("Adam", 1e-3, 6),
        {"conv2": {"bias": constant(-9.0)}},
    ),
    Case(
        "dead: values, bias -30",
        "dead",
        PRICE,
        table(houses(seed=7)),
        values("SGD", 1e-2, 20),
        {"fc1": {"bias": constant(-30.0)}},
    ),
    # Lost gradients
    Case(
        "lost: ten sigmoids",
        "stuck",
        mlp(DIGITS, 10, *[16] * 10, activation="nn.Sigmoid"),
        digits,
        settings("SGD", 0.01, 8),
    ),
    # A class that is never predicted
    Case(
        "class: 4 % of two",
        "unpredicted",
        mlp(4, 2),
        table(blobs([960, 40], 0.6)),
        settings("Adam", 1e-2, 20),
    ),
    Case(
        "class: a rare one of three",
        "unpredicted",
        mlp(4, 3, 8),
        table(blobs([500, 500, 40], 0.8, seed=3)),
        settings("Adam", 1e-2, 20),
    ),
    Case(
        "class: 5 %, tanh",
        "unpredicted",
        mlp(6, 2, 8, activation="nn.Tanh"),
        table(blobs([760, 40], 0.5, 6, seed=4)),
        settings("SGD", 0.05, 30),
    ),
    Case(
        "class: two rare ones",
        "unpredicted",
        mlp(4, 4, 16),
        table(blobs([500, 500, 35, 35], 0.6, seed=5)),
        settings("Adam", 5e-3, 20),
    ),
    # Shuffled labels
    Case(
        "labels: digits, small net",
        "labels",
        mlp(64, 10, 8),
        table(shuffled(of_digits)),
        settings("Adam", 1e-3, 8),
    ),
    Case(
        "labels: digits, memorised",
        "labels",
        mlp(64, 10, 256),
        table(shuffled(lambda: of_digits(800))),
        settings("Adam", 3e-3, 25),
    ),
    Case(
        "labels: clouds",
        "labels",
        mlp(4, 3, 16),
        table(shuffled(blobs([200] * 3, 3.0))),
        settings("Adam", 5e-3, 15),
    ),
    Case(
        "labels: values",
        "labels",
        mlp(4, 1, 16),
        table(shuffled(houses(800))),
        values("Adam", 1e-3, 20),
    ),
    # A loss that does not fit
    Case(
        "loss: softmax, CrossEntropyLoss",
        "misfit",
        mlp(DIGITS, 10, 32, last=SOFTMAX),
        digits,
        settings("Adam", 1e-3, 6),
    ),
    Case(
        "loss: softmax, NLLLoss",
        "misfit",
        mlp(4, 3, 16, last=SOFTMAX),
        IRIS,
        with_loss("NLLLoss", "Adam", 5e-3, 20),
    ),
    Case(
        "loss: nothing, NLLLoss",
        "misfit",
        FLOWERS,
        IRIS,
        with_loss("NLLLoss", "Adam", 5e-3, 20),
    ),
    Case(
        "loss: sigmoid, BCEWithLogitsLoss",
        "misfit",
        mlp(2, 2, 16, last=("nn.Sigmoid", {})),
        MOONS,
        with_loss("BCEWithLogitsLoss", "Adam", 5e-3, 10),
    ),
    # Overfitting
    Case(
        "overfitting: noise columns",
        "overfitting",
        WIDE,
        table(mislabelled(blobs([100] * 2, 1.5, 20), 0.2)),
        settings("Adam", 3e-3, 40),
    ),
    Case(
        "overfitting: few values",
        "overfitting",
        mlp(4, 1, 256, 256),
        table(houses(150, noise=1.0)),
        values("Adam", 5e-3, 80),
    ),
    Case(
        "overfitting: noisy moons",
        "overfitting",
        mlp(8, 2, 256, 256),
        table(mislabelled(blobs([120] * 2, 2.0, 8, seed=8), 0.25)),
        settings("Adam", 5e-3, 40),
    ),
)

HEALTHY: tuple[Case, ...] = (
    Case("digits, MLP, Adam", "", PIXELS, digits, settings("Adam", 1e-3, 12)),
    Case("digits, MLP, SGD", "", PIXELS, digits, settings("SGD", 0.1, 12)),
    Case(
        "digits, momentum, Nesterov",
        "",
        PIXELS,
        digits,
        settings("SGD", 0.05, 10, params={"momentum": 0.9, "nesterov": True}),
    ),
    Case(
        "digits, AdamW, one cycle",
        "",
        PIXELS,
        digits,
        settings(
            "AdamW",
            1e-3,
            10,
            schedule=Schedule(
                Choice("OneCycleLR", FrozenMap(max_lr=0.01, total_steps=230)), "step"
            ),
        ),
    ),
    Case(
        "digits, cosine after a warm-up",
        "",
        PIXELS,
        digits,
        settings(
            "Adam",
            3e-3,
            10,
            schedule=Schedule(
                Choice("CosineAnnealingLR", FrozenMap(T_max=230)), "step", 20
            ),
        ),
    ),
    Case("digits, RMSprop", "", PIXELS, digits, settings("RMSprop", 1e-3, 10)),
    Case("digits, conv", "", cnn(), digits, settings("Adam", 3e-3, 6)),
    Case(
        "digits, conv, batch norm", "", cnn(norm=True), digits, settings("SGD", 0.05, 6)
    ),
    Case("digits, conv, GELU", "", cnn("nn.GELU"), digits, settings("AdamW", 3e-3, 6)),
    Case(
        "digits, dropout",
        "",
        mlp(DIGITS, 10, 128, between=[("nn.Dropout", {"p": 0.5})]),
        digits,
        settings("Adam", 1e-3, 12),
    ),
    Case(
        "digits, tanh, deep",
        "",
        mlp(DIGITS, 10, 64, 64, 64, activation="nn.Tanh"),
        digits,
        settings("Adam", 1e-3, 10),
    ),
    Case(
        "digits, ELU",
        "",
        mlp(DIGITS, 10, 64, activation="nn.ELU"),
        digits,
        settings("Adam", 1e-3, 10),
    ),
    Case("digits, wide", "", mlp(DIGITS, 10, 512), digits, settings("Adam", 1e-3, 8)),
    Case(
        "digits, log_softmax, NLLLoss",
        "",
        mlp(DIGITS, 10, 64, last=LOG_SOFTMAX),
        digits,
        with_loss("NLLLoss", "Adam", 1e-3, 10),
    ),
    Case(
        "digits, log_softmax twice",
        "",
        mlp(DIGITS, 10, 64, last=LOG_SOFTMAX),
        digits,
        settings("Adam", 1e-3, 10),
    ),
    Case(
        "digits, label smoothing",
        "",
        PIXELS,
        digits,
        settings(
            "Adam",
            1e-3,
            10,
            loss=Choice("CrossEntropyLoss", FrozenMap(label_smoothing=0.2)),
        ),
    ),
    Case("digits, mixup", "", PIXELS, digits, settings("Adam", 3e-3, 12, mixup=0.4)),
    Case(
        "digits, running mean", "", PIXELS, digits, settings("Adam", 3e-3, 10, ema=0.9)
    ),
    Case(
        "digits, clipped, accumulated",
        "",
        PIXELS,
        digits,
        settings("Adam", 3e-3, 10, clip_norm=0.5, accumulate=2),
    ),
    Case(
        "digits, small batches",
        "",
        mlp(DIGITS, 10, 32),
        digits,
        settings("SGD", 0.02, 3, batch_size=4),
    ),
    Case(
        "digits, the whole as a batch",
        "",
        PIXELS,
        digits,
        settings("Adam", 1e-2, 60, batch_size=1437),
    ),
    Case("digits, two epochs alone", "", PIXELS, digits, settings("SGD", 1e-3, 2)),
    Case("digits, a small rate", "", PIXELS, digits, settings("Adam", 1e-4, 8)),
    Case(
        "digits, LBFGS",
        "",
        mlp(DIGITS, 10),
        digits,
        settings("LBFGS", 0.5, 8, batch_size=1437),
    ),
    Case(
        "digits, one batch alone",
        "",
        PIXELS,
        digits,
        settings("Adam", 1e-2, 80, one_batch=True),
    ),
    Case(
        "digits, patience", "", PIXELS, digits, settings("Adam", 5e-3, 40, patience=3)
    ),
    Case("iris", "", FLOWERS, IRIS, settings("Adam", 1e-2, 40)),
    Case("iris, linear, SGD", "", mlp(4, 3), IRIS, settings("SGD", 0.05, 60)),
    Case("wine", "", mlp(13, 3, 16), WINE, settings("Adam", 1e-2, 30)),
    Case(
        "cancer, one logit",
        "",
        mlp(30, 1, 16),
        CANCER,
        with_loss("BCEWithLogitsLoss", "Adam", 3e-3, 20),
    ),
    Case("moons", "", POINTS, MOONS, settings("Adam", 1e-2, 30)),
    Case("noisy moons", "", mlp(2, 2, 8), NOISY_MOONS, settings("Adam", 1e-2, 25)),
    Case(
        "circles",
        "",
        POINTS,
        known("made.circles", count=600),
        settings("Adam", 1e-2, 30),
    ),
    Case(
        "clouds that overlap",
        "",
        mlp(4, 3, 8),
        table(blobs([200] * 3, 1.5, seed=6)),
        settings("Adam", 5e-3, 20),
    ),
    Case(
        "a tenth mislabelled",
        "",
        mlp(4, 2, 8),
        table(mislabelled(blobs([200] * 2, 3.0), 0.1)),
        settings("Adam", 5e-3, 25),
    ),
    Case(
        "one class rarer",
        "",
        mlp(4, 2, 16),
        table(blobs([700, 100], 4.0, seed=2)),
        settings("Adam", 1e-2, 20),
    ),
    Case(
        "codes that repeat", "", mlp(4, 2, 16), table(coded), settings("Adam", 5e-3, 20)
    ),
    Case("values, Adam", "", PRICE, table(houses()), values("Adam", 5e-3, 25)),
    Case(
        "values, noisy, weight decay",
        "",
        mlp(4, 1, 8),
        table(houses(noise=0.8, seed=9)),
        values("AdamW", 5e-3, 25, params={"weight_decay": 0.1}),
    ),
    Case(
        "prices, standardised",
        "",
        PRICE,
        table(houses(scale=1e5), standardise_target=True),
        values("Adam", 5e-3, 25),
    ),
)


# --- The table


def project_of(case: Case, folder: Path) -> Project:
    graph = net(case.rows)
    for node, inits in case.inits.items():
        graph = graph.with_node(replace(graph.nodes[node], inits=FrozenMap(inits)))
    training = replace(
        TrainingConfig(device="cpu", threads=1, seed=SEED), **case.training
    )
    data = replace(case.data(folder), split_seed=SEED)
    return Project(graph=graph, data=data, training=training)


def verdict_on(case: Case, folder: Path) -> tuple[str, str]:
    """Train and judge as `tapedeck train` and the window do; return the kind of the remark and its sentence. One that
    is made amid the run and not kept to its end counts as none of these kinds."""
    project = project_of(case, folder)
    read_spec(project.data)
    analysis = analyse(project.graph, catalog())
    errors = [
        problem
        for problem in (*analysis.problems, *preflight.problems(project, analysis))
        if problem.severity == "error"
    ]
    assert not errors, (case.name, errors)
    job = preflight.job(project, analysis)
    setup, control, history = setup_of(project, analysis), Control(), History()
    early: Remark | None = None
    for event in train(job, control, threads=1):
        history.add(event)
        if isinstance(event, EpochDone) and early is None:
            early = judge(setup, history)
    weights = control.result.state_dict if control.result is not None else None
    remark = remark_on(setup, job, history, weights)
    kind = remark.kind if remark is not None else ""
    if early is not None and early.kind != kind:
        return f"{early.kind}, {kind}", f"amid the run: {early.sentence}"
    return kind, remark.sentence if remark is not None else ""


def main(arguments: Sequence[str]) -> int:
    global SEED
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", help="parts of the names of the runs; all without any"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of other data, splits, weights and orders"
    )
    options = parser.parse_args(arguments)
    SEED = options.seed
    wrong = count = 0
    for title, cases in (("Ill", ILL), ("Healthy", HEALTHY)):
        print(f"{title}:")
        for case in cases:
            if options.names and not any(name in case.name for name in options.names):
                continue
            began = perf_counter()
            with tempfile.TemporaryDirectory() as folder:
                kind, sentence = verdict_on(case, Path(folder))
            fault = kind != case.kind
            wrong, count = wrong + fault, count + 1
            print(
                f"  {'WRONG' if fault else 'ok   '} {case.name:34} {perf_counter() - began:4.1f} s  "
                f"{kind or '-':11} {sentence}",
                flush=True,
            )
    print(f"{count} runs, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
