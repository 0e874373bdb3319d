"""Size rules for linear algebra, diagonals, lookups and sampling.

Each follows the section "Shape" or the description of the op in PyTorch's documentation.
"""

from __future__ import annotations

from msgspec.structs import replace

from app.builder.dimensions import conv as windows
from app.builder.dimensions.calls import (
    InputTensor,
    SizeCall,
    SizeNote,
    product,
    set_by,
    unchanged,
)
from app.builder.dimensions.formula import Formula, Symbol
from app.builder.dimensions.layers import leading
from app.builder.dimensions.shapes import reduction, stretched
from app.builder.value_types import Size


def over_last(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note a reduction along one dimension, the last by default."""
    return reduction(
        replace(call, params={**call.params, "dim": call.params.get("dim", -1)})
    )


def like_indices(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note one value per index along one dimension; the others broadcast."""
    arrived, indices = call.first, call.inputs["indices"][0]
    if call.params.get("dim") is None:
        text, symbols = product(indices, range(len(indices.shape)))
        return (
            SizeNote(
                Formula(text, symbols),
                f"One value for each index of {indices.name}.",
                indices.origin(0),
            ),
        )
    at = call.params["dim"] % len(arrived.shape)
    notes = stretched((arrived, indices))
    notes[at] = _size_note(
        indices, at, "i", f"One value is gathered for each index of {indices.name}."
    )
    return tuple(notes)


def like_second(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note the shape of the second input: looked-up values, or the right-hand side of a system."""
    _, second = (many[0] for many in call.inputs.values())
    return tuple(unchanged(second, i) for i in range(len(second.shape)))


def numbers_of_matrices(call: SizeCall) -> tuple[SizeNote, ...]:
    """Return one number per matrix."""
    return leading(call.first, 2)


def values_of_matrices(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note as many numbers per matrix as its shorter side."""
    return (*leading(call.first, 2), _shorter(call.first, -2, -1))


def decomposed(call: SizeCall) -> tuple[SizeNote, ...]:
    """`torch.linalg.qr` of m × n: m × k and k × n, k the shorter side."""
    arrived = call.first
    rank = len(arrived.shape)
    if call.params.get("mode", "reduced") != "reduced":
        raise TypeError
    shorter = _shorter(arrived, -2, -1)
    if call.output == 0:
        return (
            *leading(arrived, 2),
            unchanged(arrived, rank - 2, "The rows of the matrix."),
            shorter,
        )
    return (
        *leading(arrived, 2),
        shorter,
        unchanged(arrived, rank - 1, "The columns of the matrix."),
    )


def traced(call: SizeCall) -> tuple[SizeNote, ...]:
    """Return a single number."""
    return ()


def diagonal(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note `torch.diagonal`: without `dim1` and `dim2`, the shorter of them last."""
    arrived = call.first
    rank = len(arrived.shape)
    one, other = (
        call.params.get(name, default) % rank
        for name, default in (("dim1", 0), ("dim2", 1))
    )
    if call.params.get("offset", 0):
        raise TypeError
    rest = (unchanged(arrived, i) for i in range(rank) if i not in (one, other))
    return (*rest, _shorter(arrived, one, other))


def onto_diagonal(call: SizeCall) -> tuple[SizeNote, ...]:
    """`torch.diag_embed`: the last dimension doubled to a square, enlarged by the offset."""
    arrived, offset = call.first, abs(call.params.get("offset", 0))
    rank = len(arrived.shape) + 1
    places = {
        call.params.get(name, default) % rank
        for name, default in (("dim1", -2), ("dim2", -1))
    }
    symbols: tuple[Symbol, ...] = (arrived.symbol("x", -1),)
    if offset:
        symbols = (*symbols, Symbol("o", "offset", offset))
    words = "The values are placed on the diagonal of a square matrix."
    side = SizeNote(
        Formula("x + o" if offset else "x", symbols), words, arrived.origin(-1)
    )
    others = iter([unchanged(arrived, i) for i in range(rank - 2)])
    return tuple(side if place in places else next(others) for place in range(rank))


def distances(call: SizeCall) -> tuple[SizeNote, ...]:
    """`torch.cdist`: each row of the first with each row of the second."""
    first, second = (many[0] for many in call.inputs.values())
    batch = stretched((first, second), cut=2)
    words = "A distance for each row of {}."
    return (
        *batch,
        _size_note(first, len(first.shape) - 2, "a", words.format(first.name)),
        _size_note(second, len(second.shape) - 2, "b", words.format(second.name)),
    )


def bilinear(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note `F.bilinear`: the first size of the weight in place of the last dimension."""
    arrived, weight = call.first, call.inputs["weight"][0]
    return (
        *leading(arrived, 1),
        _size_note(weight, 0, "w", f"The first size of {weight.name} sets it."),
    )


def bags(call: SizeCall) -> tuple[SizeNote, ...]:
    """`F.embedding_bag` of (N, L): one row of the table for each bag."""
    arrived, table = call.first, call.inputs["weight"][0]
    if len(arrived.shape) != 2:
        raise TypeError
    return unchanged(arrived, 0), _size_note(
        table, 1, "w", f"The rows of a bag become one row of {table.name}."
    )


def transposed(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note a transposed convolution with a wired weight: its second size is the channels, its last ones the kernel."""
    weight = call.inputs["weight"][0].shape
    channels: Size = weight[1]
    if isinstance(channels, int):
        channels *= call.params.get("groups", 1)
    params = {**call.params, "out_channels": channels, "kernel_size": weight[2:]}
    at = len(call.first.shape) - len(weight) + 1
    notes = windows.transposed(
        replace(
            call,
            op=call.op.replace("F.conv_transpose", "nn.ConvTranspose"),
            params=params,
        )
    )
    words = f"The second size of {call.inputs['weight'][0].name} sets it."
    return tuple(
        replace(one, words=words) if i == at else one for i, one in enumerate(notes)
    )


def sampled(call: SizeCall) -> tuple[SizeNote, ...]:
    """`F.grid_sample`: the channels of the picture at the positions of the grid."""
    picture, grid = call.first, call.inputs["grid"][0]
    words = f"{grid.name} sets the number of positions."
    places = (_size_note(grid, i, "g", words) for i in range(1, len(grid.shape) - 1))
    return (unchanged(picture, 0), unchanged(picture, 1), *places)


def spectrum(call: SizeCall) -> tuple[SizeNote, ...]:
    """`torch.stft` of a signal: frequencies, and the number of windows."""
    arrived, n = call.first, call.params["n_fft"]
    if call.params.get("onesided") is False or not call.params.get("return_complex"):
        raise TypeError
    hop = call.params.get("hop_length") or n // 4
    size = Symbol("n", "n_fft", n)
    half = f"The spectrum of n_fft = {n} values; the other half is its conjugate."
    frequencies = SizeNote(Formula("n // 2 + 1", (size,)), half)
    pad = n // 2 if call.params.get("center", True) else 0
    symbols = (
        arrived.symbol("x", -1),
        Symbol("p", "n_fft // 2", pad),
        size,
        Symbol("h", "hop_length", hop),
    )
    words = f"A window of {n} values moves by hop_length = {hop}."
    return (
        *leading(arrived, 1),
        frequencies,
        SizeNote(Formula("(x + 2*p - n) // h + 1", symbols), words, arrived.origin(-1)),
    )


def _size_note(
    arrived: InputTensor, dimension: int, letter: str, words: str
) -> SizeNote:
    return SizeNote(
        Formula(letter, (arrived.symbol(letter, dimension),)),
        words,
        arrived.origin(dimension),
    )


def _shorter(arrived: InputTensor, one: int, other: int) -> SizeNote:
    """Return the smaller of two sizes."""
    a, b = arrived.shape[one], arrived.shape[other]
    if not isinstance(a, int) or not isinstance(b, int):
        raise TypeError
    at = one if a <= b else other
    return set_by(
        f"dim {at % len(arrived.shape)} of {arrived.name}",
        min(a, b),
        "The shorter side of the matrix.",
        arrived.origin(at),
    )
