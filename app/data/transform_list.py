"""Transforms of `torchvision.transforms.v2` that pictures may go through: their parameters, and the shapes they leave.

The list is closed: a name is looked up here, and only then on torchvision. What a transform draws at random it draws
from torch's global generator, for each sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.data.config import Transform
from app.data.spec import DataError, Option
from app.util.frozen import FrozenMap

Shape = tuple[int, ...]


def _same(shape: Shape, _params: Mapping[str, Any]) -> Shape:
    return shape


def _sized(shape: Shape, params: Mapping[str, Any]) -> Shape:
    return (shape[0], *params["size"])


def _padded(shape: Shape, params: Mapping[str, Any]) -> Shape:
    return (shape[0], *(side + 2 * params["padding"] for side in shape[1:]))


def _grey(_shape: Shape, params: Mapping[str, Any]) -> Shape:
    return (params["num_output_channels"], *_shape[1:])


@dataclass(frozen=True)
class Kind:
    """A transform: whether it draws at random, its parameters, and the shape that it makes of a shape."""

    name: str
    random: bool
    doc: str
    options: tuple[Option, ...] = ()
    shape: Callable[[Shape, Mapping[str, Any]], Shape] = _same


def _share(name: str, default: float, doc: str) -> Option:
    return Option(name, "float", default, minimum=0, maximum=1, doc=doc)


def _chance(default: float = 0.5) -> Option:
    return _share("p", default, "How often it happens, from 0 to 1.")


def _positive(name: str, default: float, doc: str, maximum: float | None = None) -> Option:
    return Option(name, "float", default, minimum=0, maximum=maximum, doc=doc)


_SIZE = Option("size", "literal", (32, 32), count=2, doc="Height and width.")

KINDS: FrozenMap[str, Kind] = FrozenMap(
    {
        kind.name: kind
        for kind in (
            Kind("Normalize", False, "Take off the mean and divide by the spread, channel by channel.",
                 (Option("mean", "literal", (0.5,), doc="Of each channel, or one for all."),
                  Option("std", "literal", (0.5,), doc="Of each channel, or one for all."))),
            Kind("Resize", False, "Another height and width.", (_SIZE,), _sized),
            Kind("CenterCrop", False, "The middle of the picture.", (_SIZE,), _sized),
            Kind("Pad", False, "A border of zeros.",
                 (Option("padding", "int", 2, minimum=0, maximum=1000, doc="Its width."),), _padded),
            Kind("Grayscale", False, "Without colour.",
                 (Option("num_output_channels", "choice", 1, choices=(1, 3), doc="Channels that are left."),), _grey),
            Kind("RandomHorizontalFlip", True, "Mirrored, now and then.", (_chance(),)),
            Kind("RandomVerticalFlip", True, "Upside down, now and then.", (_chance(),)),
            Kind("RandomCrop", True, "A piece at a random place.",
                 (_SIZE, Option("padding", "int", 4, minimum=0, maximum=1000, doc="Border of zeros before.")), _sized),
            Kind("RandomResizedCrop", True, "A piece of random size, resized.",
                 (_SIZE, Option("scale", "literal", (0.08, 1.0), count=2, doc="Smallest and largest share.")), _sized),
            Kind("RandomRotation", True, "Turned.", (_positive("degrees", 10.0, "At most, either way.", 360),)),
            Kind("RandomAffine", True, "Turned, moved and scaled.",
                 (_positive("degrees", 10.0, "At most, either way.", 360),
                  Option("translate", "literal", (0.1, 0.1), count=2, doc="At most, as shares of width and height."),
                  Option("scale", "literal", (0.9, 1.1), count=2, doc="Smallest and largest factor."))),
            Kind("ColorJitter", True, "Brightness, contrast, saturation and hue moved.",
                 (_positive("brightness", 0.2, "At most, either way."), _positive("contrast", 0.2, "At most."),
                  _positive("saturation", 0.2, "At most."), _positive("hue", 0.0, "At most.", 0.5))),
            Kind("RandomGrayscale", True, "Grey, now and then.", (_chance(0.1),)),
            Kind("RandomErasing", True, "A rectangle made blank, now and then.", (_chance(),)),
            Kind("GaussianNoise", True, "Noise on every value.",
                 (Option("mean", "float", 0.0, doc="Of the noise."), _positive("sigma", 0.1, "Spread of the noise."))),
            Kind("GaussianBlur", True, "Blurred.",
                 (Option("kernel_size", "choice", 3, choices=(3, 5, 7, 9), doc="Width of the window."),
                  Option("sigma", "literal", (0.1, 2.0), count=2, doc="Smallest and largest spread."))),
            Kind("RandAugment", True, "A few operations at random, of one strength.",
                 (Option("num_ops", "int", 2, minimum=1, maximum=10, doc="How many."),
                  Option("magnitude", "int", 9, minimum=0, maximum=30, doc="How strong."))),
            Kind("TrivialAugmentWide", True, "One operation at random, of random strength."),
        )
    }
)  # fmt: skip


def params_of(transform: Transform) -> dict[str, Any]:
    """The parameters, defaults among them, each of its kind, so its `repr` is Python. Raises DataError."""
    if transform.name not in KINDS:
        raise DataError(f"There is no transform “{transform.name}”. Choose one of: {', '.join(KINDS)}.")
    options = {option.name: option for option in KINDS[transform.name].options}
    for name, value in transform.params.items():
        if name not in options:
            raise DataError(f"{transform.name} has no parameter “{name}”.")
        if refusal := options[name].refusal(value):
            raise DataError(f"{transform.name}: {name} is {value!r}; {refusal}.")
    return {name: transform.params.get(name, option.default) for name, option in options.items()}


def is_random(transforms: Sequence[Transform]) -> bool:
    """Whether any of them draws."""
    return any(KINDS[transform.name].random for transform in transforms)


# What draws for many pictures as for each: see `app.data.transforms.augmented`. Noise is drawn for every value.
TOGETHER = ("RandomHorizontalFlip", "RandomVerticalFlip", "RandomCrop", "GaussianNoise")


def alone(transforms: Sequence[Transform]) -> tuple[str, ...]:
    """Those that draw, and are to be given pictures one by one."""
    return tuple(dict.fromkeys(one.name for one in transforms if KINDS[one.name].random and one.name not in TOGETHER))


def shape_after(transforms: Sequence[Transform], shape: Shape) -> Shape:
    """What the transforms make of a picture's shape. Raises DataError for what they cannot be used on."""
    for transform in transforms:
        params = params_of(transform)
        if len(shape) != 3 or shape[0] not in (1, 3):
            raise DataError(f"{transform.name} wants pictures of 1 or 3 channels, and the data are {shape}.")
        crop = transform.name in ("CenterCrop", "RandomCrop")
        room = 2 * params.get("padding", 0)
        if crop and any(side + room < wanted for side, wanted in zip(shape[1:], params["size"], strict=True)):
            sizes = f"{params['size']} of pictures of {shape[1:]}"
            raise DataError(f"{transform.name} takes {sizes}: make its size smaller.")
        if transform.name == "Normalize" and any(len(params[name]) not in (1, shape[0]) for name in ("mean", "std")):
            raise DataError(f"Normalize wants one mean and std, or {shape[0]} of each: a channel of the pictures each.")
        shape = KINDS[transform.name].shape(shape, params)
    return shape


def calls(transforms: Sequence[Transform]) -> list[str]:
    """The transforms as Python, made of `v2`. Raises DataError."""
    found = []
    for transform in transforms:
        params = params_of(transform)
        found.append(f"v2.{transform.name}({', '.join(f'{name}={value!r}' for name, value in params.items())})")
    return found
