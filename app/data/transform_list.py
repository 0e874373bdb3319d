"""Registry of `torchvision.transforms.v2` transforms: parameters and output shapes.

The list is closed: a name is looked up here before torchvision. Random transforms use torch's global generator, for
each sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from app.data.config import Transform
from app.data.spec import DataError, Option
from app.util.frozen import FrozenMap

Shape = tuple[int, ...]


def _unchanged(shape: Shape, _params: Mapping[str, Any]) -> Shape:
    return shape


def _sized(shape: Shape, params: Mapping[str, Any]) -> Shape:
    return (shape[0], *params["size"])


def _padded(shape: Shape, params: Mapping[str, Any]) -> Shape:
    return (shape[0], *(side + 2 * params["padding"] for side in shape[1:]))


def _grey(_shape: Shape, params: Mapping[str, Any]) -> Shape:
    return (params["num_output_channels"], *_shape[1:])


class Kind(Struct, frozen=True):
    """A transform: whether it is random, its parameters, and its output shape for an input shape."""

    name: str
    random: bool
    doc: str
    options: tuple[Option, ...] = ()
    shape: Callable[[Shape, Mapping[str, Any]], Shape] = _unchanged


def _share(name: str, default: float, doc: str) -> Option:
    return Option(name, "float", default, minimum=0, maximum=1, doc=doc)


_TINY = 1e-6  # the least of what torchvision divides by
_LARGE = 1e6


def _range(name: str, default: tuple[float, float], minimum: float, doc: str) -> Option:
    return Option(
        name, "literal", default, count=2, minimum=minimum, rising=True, doc=doc
    )


def _chance(default: float = 0.5) -> Option:
    return _share("p", default, "Probability, from 0 to 1.")


def _positive(
    name: str, default: float, doc: str, maximum: float | None = None
) -> Option:
    return Option(name, "float", default, minimum=0, maximum=maximum, doc=doc)


_SIZE = Option("size", "literal", (32, 32), count=2, doc="Height and width.")

KINDS: FrozenMap[str, Kind] = FrozenMap(
    {
        kind.name: kind
        for kind in (
            Kind(
                "Normalize",
                False,
                "Subtract mean and divide by standard deviation, per channel.",
                (
                    Option(
                        "mean",
                        "literal",
                        (0.5,),
                        minimum=-_LARGE,
                        maximum=_LARGE,
                        doc="Per channel, or one for all.",
                    ),
                    Option(
                        "std",
                        "literal",
                        (0.5,),
                        minimum=_TINY,
                        doc="Per channel, or one for all.",
                    ),
                ),
            ),
            Kind(
                "Resize", False, "Resize to another height and width.", (_SIZE,), _sized
            ),
            Kind(
                "CenterCrop", False, "Crop the centre of the image.", (_SIZE,), _sized
            ),
            Kind(
                "Pad",
                False,
                "Add a border of zeros.",
                (
                    Option(
                        "padding",
                        "int",
                        2,
                        minimum=0,
                        maximum=1000,
                        doc="Width of the border.",
                    ),
                ),
                _padded,
            ),
            Kind(
                "Grayscale",
                False,
                "Convert to greyscale.",
                (
                    Option(
                        "num_output_channels",
                        "choice",
                        1,
                        choices=(1, 3),
                        doc="Number of output channels.",
                    ),
                ),
                _grey,
            ),
            Kind(
                "RandomHorizontalFlip",
                True,
                "Flip horizontally at random.",
                (_chance(),),
            ),
            Kind(
                "RandomVerticalFlip", True, "Flip vertically at random.", (_chance(),)
            ),
            Kind(
                "RandomCrop",
                True,
                "Crop at a random position.",
                (
                    _SIZE,
                    Option(
                        "padding",
                        "int",
                        4,
                        minimum=0,
                        maximum=1000,
                        doc="Border of zeros added first.",
                    ),
                ),
                _sized,
            ),
            Kind(
                "RandomResizedCrop",
                True,
                "Crop of random size, resized.",
                (
                    _SIZE,
                    _range(
                        "scale",
                        (0.08, 1.0),
                        0,
                        "Smallest and largest fraction of the area.",
                    ),
                ),
                _sized,
            ),
            Kind(
                "RandomRotation",
                True,
                "Random rotation.",
                (_positive("degrees", 10.0, "Maximum, in either direction.", 360),),
            ),
            Kind(
                "RandomAffine",
                True,
                "Random rotation, translation and scaling.",
                (
                    _positive("degrees", 10.0, "Maximum, in either direction.", 360),
                    Option(
                        "translate",
                        "literal",
                        (0.1, 0.1),
                        count=2,
                        minimum=0,
                        maximum=1,
                        doc="Maximum, as fractions of width and height.",
                    ),
                    _range("scale", (0.9, 1.1), _TINY, "Smallest and largest factor."),
                ),
            ),
            Kind(
                "ColorJitter",
                True,
                "Random change of brightness, contrast, saturation and hue.",
                (
                    _positive(
                        "brightness", 0.2, "Maximum, in either direction.", _LARGE
                    ),
                    _positive("contrast", 0.2, "Maximum.", _LARGE),
                    _positive("saturation", 0.2, "Maximum.", _LARGE),
                    _positive("hue", 0.0, "Maximum.", 0.5),
                ),
            ),
            Kind(
                "RandomGrayscale",
                True,
                "Convert to greyscale at random.",
                (_chance(0.1),),
            ),
            Kind("RandomErasing", True, "Erase a random rectangle.", (_chance(),)),
            Kind(
                "GaussianNoise",
                True,
                "Add Gaussian noise to every value.",
                (
                    Option("mean", "float", 0.0, doc="Mean of the noise."),
                    _positive("sigma", 0.1, "Standard deviation of the noise."),
                ),
            ),
            Kind(
                "GaussianBlur",
                True,
                "Gaussian blur.",
                (
                    Option(
                        "kernel_size",
                        "choice",
                        3,
                        choices=(3, 5, 7, 9),
                        doc="Kernel size.",
                    ),
                    _range(
                        "sigma",
                        (0.1, 2.0),
                        _TINY,
                        "Smallest and largest standard deviation.",
                    ),
                ),
            ),
            Kind(
                "RandAugment",
                True,
                "Several random operations of one magnitude.",
                (
                    Option(
                        "num_ops",
                        "int",
                        2,
                        minimum=1,
                        maximum=10,
                        doc="Number of operations.",
                    ),
                    Option(
                        "magnitude", "int", 9, minimum=0, maximum=30, doc="Magnitude."
                    ),
                ),
            ),
            Kind(
                "TrivialAugmentWide", True, "One random operation of random magnitude."
            ),
        )
    }
)


def params_of(transform: Transform) -> dict[str, Any]:
    """Return the parameters with defaults, validated, so that their `repr` is Python. Raises DataError."""
    if transform.name not in KINDS:
        raise DataError(
            f"There is no transform “{transform.name}”. Choose one of: {', '.join(KINDS)}."
        )
    options = {option.name: option for option in KINDS[transform.name].options}
    for name, value in transform.params.items():
        if name not in options:
            raise DataError(f"{transform.name} has no parameter “{name}”.")
        if refusal := options[name].refusal(value):
            raise DataError(f"{transform.name}: {name} is {value!r}; {refusal}.")
    return {
        name: transform.params.get(name, option.default)
        for name, option in options.items()
    }


def is_random(transforms: Sequence[Transform]) -> bool:
    """Return whether any transform is random."""
    return any(KINDS[transform.name].random for transform in transforms)


# What draws for many pictures as for each: see `app.data.transforms.augmented`. Noise is drawn for every value.
TOGETHER = ("RandomHorizontalFlip", "RandomVerticalFlip", "RandomCrop", "GaussianNoise")


def alone(transforms: Sequence[Transform]) -> tuple[str, ...]:
    """Return the random transforms that must be applied image by image."""
    return tuple(
        dict.fromkeys(
            transform.name
            for transform in transforms
            if KINDS[transform.name].random and transform.name not in TOGETHER
        )
    )


def shape_after(transforms: Sequence[Transform], shape: Shape) -> Shape:
    """Return the image shape after the transforms. Raises DataError if they cannot be applied."""
    for transform in transforms:
        params = params_of(transform)
        if len(shape) != 3 or shape[0] not in (1, 3):
            raise DataError(
                f"{transform.name} needs images with 1 or 3 channels, and the data are {shape}."
            )
        crop = transform.name in ("CenterCrop", "RandomCrop")
        room = 2 * params.get("padding", 0)
        if crop and any(
            side + room < crop_side
            for side, crop_side in zip(shape[1:], params["size"], strict=True)
        ):
            sizes = f"{params['size']} of images of {shape[1:]}"
            raise DataError(f"{transform.name} takes {sizes}: reduce its size.")
        if transform.name == "Normalize" and any(
            len(params[name]) not in (1, shape[0]) for name in ("mean", "std")
        ):
            raise DataError(
                f"Normalize needs one mean and std, or {shape[0]} of each: one per channel."
            )
        shape = KINDS[transform.name].shape(shape, params)
    return shape


def calls(transforms: Sequence[Transform]) -> list[str]:
    """Return the transforms as Python expressions of `v2`. Raises DataError."""
    expressions = []
    for transform in transforms:
        params = params_of(transform)
        expressions.append(
            f"v2.{transform.name}({', '.join(f'{name}={value!r}' for name, value in params.items())})"
        )
    return expressions
