"""Tensor values as a string literal: compressed bytes in base 85.

`tensor_values` makes the text of a tensor and the tensor of a text.
"""

from __future__ import annotations

import re

LONGEST = 2**18  # letters
MOST_BYTES = 2**27
ROW = 88  # letters in a line of source
_TEXT = re.compile(
    r"[0-9A-Za-z!#$%&()*+\-;<=>?@^_`{|}~]+"
)  # base 85: no quote and no backslash

# The decoder in generated source, if any literal needs it.
IMPORTS = ("import base64", "import zlib")
FUNCTION = '''def unpacked(text, dtype, shape):
    """The tensor whose bytes a text holds, compressed."""
    data = bytearray(zlib.decompress(base64.b85decode(text)))
    return torch.frombuffer(data, dtype=dtype).reshape(shape)'''


def is_packed(text: str) -> bool:
    """Return whether a text may hold values: base 85 without quotes, within the length limit."""
    return len(text) <= LONGEST and _TEXT.fullmatch(text) is not None


def in_source(text: str, rest: str) -> str:
    """Return the call that decodes a text, as an argument in a constructor. `rest` are its other arguments."""
    if len(text) <= ROW // 2:
        return f'unpacked("{text}", {rest})'
    margin = " " * 16
    rows = [
        f'{margin}"{text[start : start + ROW]}"' for start in range(0, len(text), ROW)
    ]
    dtype, shape = rest.split(", ", 1)
    return (
        "\n".join(["unpacked(", *rows])
        + f",\n{margin}{dtype},\n{margin}{shape},\n{' ' * 12})"
    )
