"""Registry of the data sources, with their descriptions and options."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from app.data import synthetic_fields
from app.data.archives import COLLECTIONS
from app.data.own_files.encodings import AUTO, ENCODINGS
from app.data.own_points import XOR, points_of
from app.data.spec import (
    BINARY,
    CLASSES,
    TOKENS,
    VALUES,
    DataError,
    FieldInfo,
    Option,
    SourceSpec,
)
from app.util.frozen import FrozenMap

DIGITS = "sklearn.digits"
MNIST = "torchvision.MNIST"
TEXT = "file.text"
PICTURES = "file.pictures"
PICTURE_SUFFIXES = (
    ".png",
    ".jpg",
    ".jpeg",
    ".bmp",
    ".gif",
    ".ppm",
    ".pgm",
    ".tif",
    ".tiff",
    ".webp",
)
_TEN_DIGITS = tuple("0123456789")
STANDARDISE = Option(
    "standardise",
    "bool",
    True,
    doc="Standardise each column with mean and standard deviation of the training part.",
)
STANDARDISE_TARGET = Option(
    "standardise_target",
    "bool",
    False,
    doc="Standardise values to predict with mean and standard deviation of the training part. The loss is in these "
    "units; metrics and predictions stay in those of the data.",
)
STAND_IN = Option(
    "stand_in",
    "bool",
    False,
    doc="Until the data are downloaded, train on a small stand-in, which runs and lists of runs name as such.",
)
_MADE = (
    Option("count", "int", 1000, minimum=4, maximum=1_000_000, doc="Number of points."),
    Option(
        "noise",
        "float",
        0.1,
        minimum=0,
        maximum=10,
        doc="Standard deviation of the noise added to the points.",
    ),
    Option(
        "seed",
        "int",
        0,
        minimum=0,
        maximum=2**32 - 1,
        doc="Random seed of noise and order.",
    ),
)
_SAMPLES = (
    Option(
        "count", "int", 2000, minimum=4, maximum=1_000_000, doc="Number of samples."
    ),
    Option(
        "seed",
        "int",
        0,
        minimum=0,
        maximum=2**63 - 1,
        doc="Random seed of the samples.",
    ),
)
_LETTERS = ("", *" 0123456789abcdefghijklmnopqrstuvwxyz,")  # 0 is the padding
_FAKE = (
    Option(
        "shape",
        "literal",
        (3, 32, 32),
        doc="Shape of one sample, without the batch dimension.",
    ),
    Option("classes", "int", 10, minimum=1, maximum=100_000, doc="Number of classes."),
    Option(
        "count", "int", 1000, minimum=1, maximum=10_000_000, doc="Number of samples."
    ),
    Option(
        "seed",
        "int",
        0,
        minimum=0,
        maximum=2**63 - 1,
        doc="Random seed of samples and classes.",
    ),
)

_FIELDS = (
    Option(
        "fields",
        "str",
        "first (3, 32, 32) float32; second (16,) int64 < 100",
        doc="The inputs of a sample, separated by semicolons: name, shape without the batch, and dtype. Integers "
        "are drawn below a bound.",
    ),
    Option(
        "targets",
        "str",
        "classes 10",
        doc="classes N: one of N classes; tokens (sizes) N: one of N tokens at each position; values (sizes): floats. "
        "Several are separated by semicolons, each preceded by its name.",
    ),
    *_SAMPLES,
)


_CSV = (
    Option(
        "inputs", "names", (), doc="Input columns; all but the target if none is named."
    ),
    Option(
        "fields",
        "str",
        "",
        doc="Several inputs of the network, separated by semicolons, each a name and its columns: “size: width, "
        "height; place: city”. If empty, all columns are one input.",
    ),
    Option("target", "str", "", doc="Target column; the last if none is named."),
    Option(
        "more_targets",
        "names",
        (),
        doc="Further target columns, for networks with several outputs.",
    ),
    Option(
        "task",
        "choice",
        "auto",
        choices=("auto", "classes", "values"),
        doc="Classification or regression target.",
    ),
    Option(
        "categories",
        "names",
        (),
        doc="Numeric columns that are categorical: each value gets its own input (one-hot).",
    ),
    Option(
        "numbers",
        "names",
        (),
        doc="Columns to read as numbers, even if other text occurs.",
    ),
    STANDARDISE,
    STANDARDISE_TARGET,
    Option(
        "separator",
        "choice",
        "auto",
        choices=("auto", ",", ";", "tab", "|"),
        doc="Field separator.",
    ),
    Option("header", "bool", True, doc="The first row contains column names."),
    Option(
        "encoding",
        "choice",
        AUTO,
        choices=(AUTO, *ENCODINGS),
        doc="Encoding of the text, by Python's name.",
    ),
    Option(
        "decimal",
        "choice",
        AUTO,
        choices=(AUTO, ".", ","),
        doc="Decimal sign; thousands are grouped by another.",
    ),
)
_TENSORS = (
    Option(
        "inputs",
        "str",
        "",
        doc="Name of the inputs in the file; detected if it is x, data ... Separate several by commas: one per input "
        "of the network.",
    ),
    Option(
        "labels",
        "str",
        "",
        doc="Name of the labels in the file; detected if it is y, targets ... Separate several by commas.",
    ),
    Option(
        "task",
        "choice",
        "auto",
        choices=("auto", "classes", "values"),
        doc="Classification or regression labels. auto: whole numbers, texts, booleans and one-hot rows are classes.",
    ),
    Option(
        "labels_file",
        "str",
        "",
        doc=".npy file with the labels, for inputs in a .npy file.",
    ),
    replace(STANDARDISE, default=False),
    STANDARDISE_TARGET,
)
_PICTURES = (
    Option(
        "size", "literal", (64, 64), doc="Height and width to which images are resized."
    ),
    Option("colour", "bool", True, doc="RGB or greyscale."),
    Option(
        "keep",
        "choice",
        "auto",
        choices=("auto", "memory", "disk"),
        doc="memory: read all images before the run; disk: read each image when its batch needs it. auto: memory "
        "if they fit into half of it.",
    ),
    Option(
        "workers",
        "int",
        0,
        minimum=0,
        maximum=64,
        doc="Threads that prefetch images from disk.",
    ),
    Option(
        "timeout",
        "float",
        120.0,
        minimum=0,
        maximum=86_400,
        doc="Timeout in seconds for reading an image; 0 for none.",
    ),
    Option(
        "pin_memory",
        "bool",
        False,
        doc="Copy batches to a GPU from pinned memory, asynchronously.",
    ),
)
_DATASET = (
    Option(
        "dataset",
        "str",
        "",
        doc="The class: one that was found in the file, or typed, with arguments where it needs some: "
        'Series("root", train=True). May be empty if there is only one.',
    ),
    Option(
        "workers",
        "int",
        0,
        minimum=0,
        maximum=64,
        doc="Worker processes that read a map-style dataset once before the run.",
    ),
    Option(
        "timeout",
        "float",
        120.0,
        minimum=0,
        maximum=86_400,
        doc="Timeout in seconds for a batch of a worker.",
    ),
    Option(
        "keep",
        "choice",
        "memory",
        choices=("memory", "disk"),
        doc="memory: load every sample once, before the run; disk: load it again for each batch.",
    ),
    Option(
        "pin_memory",
        "bool",
        False,
        doc="Copy batches to a GPU from pinned memory, if they are not held in memory.",
    ),
)
_TEXT = (
    Option(
        "context",
        "int",
        64,
        minimum=1,
        maximum=1_000_000,
        doc="Characters in one sample.",
    ),
)


def _halves(spec: SourceSpec, options: Mapping[str, Any]) -> SourceSpec:
    count = options["count"]
    return replace(spec, per_class=(count // 2, count - count // 2))


def _own(spec: SourceSpec, options: Mapping[str, Any]) -> SourceSpec:
    counts = Counter(point.label for point in points_of(options["points"]))
    if not counts:
        raise DataError("There are no points yet. Draw some on the page Playground.")
    return replace(spec, per_class=(counts[0], counts[1]))


def _pairs(spec: SourceSpec, options: Mapping[str, Any]) -> SourceSpec:
    return replace(
        spec,
        per_class=(options["count"] - options["count"] // 2, options["count"] // 2),
    )


def _whole(spec: SourceSpec, options: Mapping[str, Any]) -> SourceSpec:
    return replace(spec, per_class=(options["count"],))


def _fake(spec: SourceSpec, options: Mapping[str, Any]) -> SourceSpec:
    classes, count = options["classes"], options["count"]
    return replace(
        spec,
        shape=options["shape"],
        classes=tuple(map(str, range(classes))),
        # Classes go round, so that each has its share.
        per_class=tuple(len(range(first, count, classes)) for first in range(classes)),
    )


def _fields(spec: SourceSpec, options: Mapping[str, Any]) -> SourceSpec:
    fields = [field.info for field in synthetic_fields.parse_fields(options["fields"])]
    targets = synthetic_fields.parse_targets(options["targets"])
    chief, count = targets[0], options["count"]
    ids = len(chief.classes) if chief.task == CLASSES else 1
    return replace(
        spec,
        shape=fields[0].shape,
        dtype=fields[0].dtype,
        inputs=tuple(fields),
        classes=chief.classes,
        task=chief.task,
        label_shape=chief.label_shape,
        targets=targets if len(targets) > 1 else (),
        per_class=tuple(len(range(first, count, ids)) for first in range(ids)),
    )


def _table(
    name: str,
    label: str,
    summary: str,
    classes: str,
    per_class: tuple[int, ...],
    columns: str,
) -> SourceSpec:
    names = tuple(columns.split(", "))
    summary = f"{summary} They come with scikit-learn; nothing is downloaded."
    return SourceSpec(
        f"sklearn.{name}",
        f"{label} (scikit-learn)",
        summary,
        (len(names),),
        tuple(classes.split(", ")),
        per_class,
        columns=names,
        options=(STANDARDISE,),
    )


def _pictures(
    name: str,
    label: str,
    description: str,
    shape: tuple[int, ...],
    classes: tuple[str, ...],
    per_class: tuple[int, ...],
    held_out: int,
    host: str,
) -> SourceSpec:
    key, count = f"torchvision.{name}", sum(per_class)
    summary = f"{description}: {count:,} for training, {held_out:,} for validation, split by their authors."
    return SourceSpec(
        key,
        f"{label} (torchvision)",
        summary,
        shape,
        classes,
        per_class,
        own_split=True,
        held_out=held_out,
        download_bytes=COLLECTIONS[key].size,
        host=host,
        as_bytes=shape[0] == 3,
        options=(STAND_IN,) if key in (MNIST, "torchvision.CIFAR10") else (),
    )


_HUNDRED = tuple(
    """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
    castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
    elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
    man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
    pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
    skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
    tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm""".split()
)
_SOURCES = (
    SourceSpec(
        DIGITS,
        "Handwritten digits (scikit-learn)",
        "1,797 real 8×8 images that come with scikit-learn; nothing is downloaded.",
        (1, 8, 8),
        _TEN_DIGITS,
        (178, 182, 177, 183, 181, 182, 181, 179, 174, 180),
    ),
    _table(
        "iris",
        "Iris",
        "150 flowers of three kinds, measured by four lengths in cm.",
        "setosa, versicolor, virginica",
        (50, 50, 50),
        "sepal length, sepal width, petal length, petal width",
    ),
    _table(
        "wine",
        "Wine",
        "178 wines of three growers, by 13 chemical measurements.",
        "class_0, class_1, class_2",
        (59, 71, 48),
        "alcohol, malic_acid, ash, alcalinity_of_ash, magnesium, total_phenols, flavanoids, nonflavanoid_phenols, "
        "proanthocyanins, color_intensity, hue, od280/od315_of_diluted_wines, proline",
    ),
    _table(
        "breast_cancer",
        "Breast cancer",
        "569 tumours, benign or malignant, by 30 measurements of their cells.",
        "malignant, benign",
        (212, 357),
        ", ".join(
            f"{kind} {name}"
            for kind in ("mean", "error of", "worst")
            for name in (
                "radius",
                "texture",
                "perimeter",
                "area",
                "smoothness",
                "compactness",
                "concavity",
                "concave points",
                "symmetry",
                "fractal dimension",
            )
        ),
    ),
    SourceSpec(
        "made.moons",
        "Two moons",
        "Points on two half circles, generated by scikit-learn.",
        (2,),
        ("upper", "lower"),
        columns=("x", "y"),
        options=_MADE,
    ),
    SourceSpec(
        "made.circles",
        "Two circles",
        "Points on two nested circles, generated by scikit-learn.",
        (2,),
        ("outer", "inner"),
        columns=("x", "y"),
        options=(
            *_MADE,
            Option(
                "factor",
                "float",
                0.5,
                minimum=0,
                maximum=0.999,
                doc="Radius of the inner circle relative to the outer one.",
            ),
        ),
    ),
    SourceSpec(
        "made.own",
        "Points of your own",
        "Points of two classes that you draw on the page Playground.",
        (2,),
        ("first", "second"),
        columns=("x", "y"),
        options=(
            Option(
                "points",
                "str",
                XOR,
                doc="x, y and class (0 or 1) of each point, with a semicolon between two.",
            ),
        ),
    ),
    SourceSpec(
        "made.pairs",
        "Pairs of digits",
        "Two images of scikit-learn's handwritten digits, of the same digit or not: an input each. Pairs are "
        "drawn before the split, so an image may be in pairs of both parts.",
        (1, 8, 8),
        ("different", "same"),
        options=_SAMPLES,
        inputs=(FieldInfo("first", (1, 8, 8)), FieldInfo("second", (1, 8, 8))),
    ),
    SourceSpec(
        "made.shapes",
        "Shapes and their masks",
        "Ellipses and rectangles on noise, generated, each image with a mask of the pixels in a shape: "
        "for networks that segment, such as a U-Net.",
        (1, 64, 64),
        task=VALUES,
        label_shape=(1, 64, 64),
        label_form=BINARY,
        options=_SAMPLES,
    ),
    SourceSpec(
        "made.dates",
        "Dates",
        "Dates as people write them, such as “3 march 1997”, to be written as “1997-03-03”, by an encoder and a "
        "decoder: the text, its padding mask, and the answer shifted by one position.",
        (18,),
        tuple("0123456789-"),
        dtype="int64",
        task=TOKENS,
        label_shape=(10,),
        options=_SAMPLES,
        inputs=(
            FieldInfo("written", (18,), "int64", _LETTERS),
            FieldInfo("padding", (18,), "bool"),
            FieldInfo("so_far", (10,), "int64", (*"0123456789-", "▸")),
        ),
    ),
    SourceSpec(
        "made.fake",
        "Synthetic data (dry run)",
        "Random noise of any shape with random classes, to try a network without data. There is nothing to "
        "learn in it.",
        options=_FAKE,
    ),
    SourceSpec(
        "made.fields",
        "Synthetic fields (dry run)",
        "Random noise for a network with several inputs, with integers or masks, or with several targets.",
        options=_FIELDS,
    ),
    _pictures(
        "MNIST",
        "MNIST",
        "70,000 handwritten digits of 28×28",
        (1, 28, 28),
        _TEN_DIGITS,
        (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        10_000,
        "ossci-datasets.s3.amazonaws.com (PyTorch's mirror), else from yann.lecun.com",
    ),
    _pictures(
        "FashionMNIST",
        "Fashion-MNIST",
        "70,000 pieces of clothing of 28×28",
        (1, 28, 28),
        (
            "T-shirt/top",
            "Trouser",
            "Pullover",
            "Dress",
            "Coat",
            "Sandal",
            "Shirt",
            "Sneaker",
            "Bag",
            "Ankle boot",
        ),
        (6000,) * 10,
        10_000,
        "fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    ),
    _pictures(
        "KMNIST",
        "KMNIST",
        "70,000 cursive Japanese characters of 28×28",
        (1, 28, 28),
        ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"),
        (6000,) * 10,
        10_000,
        "codh.rois.ac.jp",
    ),
    _pictures(
        "CIFAR10",
        "CIFAR-10",
        "60,000 colour photographs of 32×32",
        (3, 32, 32),
        (
            "airplane",
            "automobile",
            "bird",
            "cat",
            "deer",
            "dog",
            "frog",
            "horse",
            "ship",
            "truck",
        ),
        (5000,) * 10,
        10_000,
        "www.cs.toronto.edu",
    ),
    _pictures(
        "CIFAR100",
        "CIFAR-100",
        "60,000 colour photographs of 32×32 in 100 classes",
        (3, 32, 32),
        _HUNDRED,
        (500,) * 100,
        10_000,
        "www.cs.toronto.edu",
    ),
    _pictures(
        "SVHN",
        "SVHN",
        "99,289 house numbers of 32×32 in colour",
        (3, 32, 32),
        _TEN_DIGITS,
        (4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
        26_032,
        "ufldl.stanford.edu",
    ),
    _pictures(
        "STL10",
        "STL-10",
        "13,000 colour photographs of 96×96",
        (3, 96, 96),
        (
            "airplane",
            "bird",
            "car",
            "cat",
            "deer",
            "dog",
            "horse",
            "monkey",
            "ship",
            "truck",
        ),
        (500,) * 10,
        8_000,
        "ai.stanford.edu",
    ),
    SourceSpec(
        "file.csv",
        "CSV file…",
        "A text table: one row per sample, columns of your choice as inputs and one as target.",
        picks="file",
        pattern="*.csv *.tsv *.txt",
        options=_CSV,
    ),
    SourceSpec(
        "file.tensors",
        "Tensors (.npz, .npy, .pt)…",
        "Two arrays of a file: inputs and labels, one row per sample. No code in the file is executed.",
        picks="file",
        pattern="*.npz *.npy *.pt",
        options=_TENSORS,
    ),
    SourceSpec(
        PICTURES,
        "Image folder…",
        "One folder of images per class, as for torchvision's ImageFolder; images are resized.",
        picks="folder",
        options=_PICTURES,
    ),
    SourceSpec(
        TEXT,
        "Text file as characters…",
        "Predict the next character from each character of a sequence.",
        picks="file",
        pattern="*",
        dtype="int64",
        task=TOKENS,
        options=_TEXT,
    ),
    SourceSpec(
        "file.dataset",
        "Dataset class of a Python file…",
        "A class of torch.utils.data.Dataset, map-style or iterable, with literals as its arguments. "
        "It is read once, by a DataLoader.",
        picks="file",
        pattern="*.py",
        options=_DATASET,
    ),
)

SOURCES: FrozenMap[str, SourceSpec] = FrozenMap({spec.key: spec for spec in _SOURCES})

# Sources whose options determine shape or sizes.
SIZED: FrozenMap[str, Callable[[SourceSpec, Mapping[str, Any]], SourceSpec]] = (
    FrozenMap(
        {
            "made.moons": _halves,
            "made.circles": _halves,
            "made.own": _own,
            "made.pairs": _pairs,
            "made.shapes": _whole,
            "made.dates": _whole,
            "made.fake": _fake,
            "made.fields": _fields,
        }
    )
)
