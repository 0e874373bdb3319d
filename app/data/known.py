"""The sources of data that the program knows, and what is to be said of each before it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from app.data.spec import Option, SourceSpec
from app.frozen import FrozenMap

DIGITS = "sklearn.digits"
MNIST = "torchvision.MNIST"
_TEN_DIGITS = tuple("0123456789")
STANDARDISE = Option(
    "standardise", "bool", True, doc="Take off the mean and divide by the spread of the training part, by column."
)
_MADE = (
    Option("count", "int", 1000, minimum=4, maximum=1_000_000, doc="How many points are made."),
    Option("noise", "float", 0.1, minimum=0, maximum=10, doc="Spread of the noise that the points are moved by."),
    Option("seed", "int", 0, minimum=0, maximum=2**32 - 1, doc="Decides the noise and the order."),
)
_FAKE = (
    Option("shape", "literal", (3, 32, 32), doc="One sample, without the batch."),
    Option("classes", "int", 10, minimum=1, maximum=100_000, doc="How many classes there are."),
    Option("count", "int", 1000, minimum=1, maximum=10_000_000, doc="How many samples are made."),
    Option("seed", "int", 0, minimum=0, maximum=2**63 - 1, doc="Decides samples and classes."),
)


def _halves(spec: SourceSpec, options: Mapping[str, Any]) -> SourceSpec:
    count = options["count"]
    return replace(spec, per_class=(count // 2, count - count // 2))


def _fake(spec: SourceSpec, options: Mapping[str, Any]) -> SourceSpec:
    classes, count = options["classes"], options["count"]
    return replace(
        spec,
        shape=options["shape"],
        classes=tuple(map(str, range(classes))),
        # Classes go round, so that each has its share.
        per_class=tuple(len(range(first, count, classes)) for first in range(classes)),
    )


def _table(name: str, label: str, summary: str, classes: str, per_class: tuple[int, ...], columns: str) -> SourceSpec:
    names = tuple(columns.split(", "))
    summary = f"{summary} They come with scikit-learn; nothing is downloaded."
    return SourceSpec(
        f"sklearn.{name}", f"{label} (scikit-learn)", summary, (len(names),), tuple(classes.split(", ")), per_class,
        columns=names, options=(STANDARDISE,),
    )  # fmt: skip


_SOURCES = (
    SourceSpec(
        DIGITS,
        "Handwritten digits (scikit-learn)",
        "1,797 real 8×8 images that come with scikit-learn; nothing is downloaded.",
        (1, 8, 8),
        _TEN_DIGITS,
        (178, 182, 177, 183, 181, 182, 181, 179, 174, 180),
    ),
    _table("iris", "Iris", "150 flowers of three kinds, measured by four lengths in cm.",
           "setosa, versicolor, virginica", (50, 50, 50), "sepal length, sepal width, petal length, petal width"),
    _table("wine", "Wine", "178 wines of three growers, by 13 chemical measurements.",
           "class_0, class_1, class_2", (59, 71, 48),
           "alcohol, malic_acid, ash, alcalinity_of_ash, magnesium, total_phenols, flavanoids, nonflavanoid_phenols, "
           "proanthocyanins, color_intensity, hue, od280/od315_of_diluted_wines, proline"),
    _table("breast_cancer", "Breast cancer", "569 tumours, benign or malignant, by 30 measurements of their cells.",
           "malignant, benign", (212, 357),
           ", ".join(f"{kind} {name}" for kind in ("mean", "error of", "worst")
                     for name in ("radius", "texture", "perimeter", "area", "smoothness", "compactness", "concavity",
                                  "concave points", "symmetry", "fractal dimension"))),
    SourceSpec("made.moons", "Two moons", "Points on two half circles, made on the spot with scikit-learn.",
               (2,), ("upper", "lower"), columns=("x", "y"), options=_MADE, sized=_halves),
    SourceSpec("made.circles", "Two circles", "Points on one circle in another, made on the spot with scikit-learn.",
               (2,), ("outer", "inner"), columns=("x", "y"),
               options=(*_MADE, Option("factor", "float", 0.5, minimum=0, maximum=0.999,
                                       doc="Radius of the inner circle, of the outer one's.")), sized=_halves),
    SourceSpec("made.fake", "Synthetic data (dry run)",
               "Noise of any shape with classes at random: to try a net without data. There is nothing to learn in it.",
               options=_FAKE, sized=_fake),
    SourceSpec(
        MNIST,
        "MNIST (torchvision)",
        "70,000 handwritten digits of 28×28: 60,000 to train on, 10,000 to validate, as their authors split them.",
        (1, 28, 28),
        _TEN_DIGITS,
        (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        own_split=True,
        held_out=10_000,
        download_bytes=11_594_722,
        host="ossci-datasets.s3.amazonaws.com (PyTorch's mirror)",
    ),
)  # fmt: skip

SOURCES: FrozenMap[str, SourceSpec] = FrozenMap({spec.key: spec for spec in _SOURCES})
