"""Values of a tensor as a text: its bytes, compressed, in letters that stand in source as they are.

`tensor_values` makes the text of a tensor and the tensor of a text.
"""

from __future__ import annotations

import re

LONGEST = 2**18  # letters
MOST_BYTES = 2**27
ROW = 88  # letters in a line of source
_TEXT = re.compile(r"[0-9A-Za-z!#$%&()*+\-;<=>?@^_`{|}~]+")  # base 85: no quote and no backslash

# What the source says of it, where there is any.
IMPORTS = ("import base64", "import zlib")
FUNCTION = '''def unpacked(text, dtype, shape):
    """The tensor whose bytes a text holds, compressed."""
    data = bytearray(zlib.decompress(base64.b85decode(text)))
    return torch.frombuffer(data, dtype=dtype).reshape(shape)'''


def is_packed(text: str) -> bool:
    """Whether a text may hold values: in letters that need no care in source, and not too many of them."""
    return len(text) <= LONGEST and _TEXT.fullmatch(text) is not None


def in_source(text: str, rest: str) -> str:
    """The call that unpacks a text, as an argument in a constructor. `rest` are its other arguments."""
    if len(text) <= ROW // 2:
        return f'unpacked("{text}", {rest})'
    margin = " " * 16
    rows = [f'{margin}"{text[start : start + ROW]}"' for start in range(0, len(text), ROW)]
    dtype, shape = rest.split(", ", 1)
    return "\n".join(["unpacked(", *rows]) + f",\n{margin}{dtype},\n{margin}{shape},\n{' ' * 12})"
