"""Parse the argument descriptions out of torch's docstrings."""

from __future__ import annotations

import re


def argument_docs(doc: str) -> dict[str, str]:
    """Return the descriptions in the `Args:` section of a torch docstring, by argument, each as one line of plain text.

    >>> argument_docs("Args:\\n    lr (float, optional): learning\\n        rate (default: 1e-3)\\n    d: clip\\n\\nX")
    {'lr': 'learning rate (default: 1e-3)', 'd': 'clip'}
    """
    descriptions: dict[str, str] = {}
    _, _, rest = doc.partition("Args:\n")
    margin = len(rest) - len(rest.lstrip(" "))
    current = None
    for line in rest.splitlines():
        if line.strip() and len(line) - len(line.lstrip()) < max(margin, 1):
            break
        match = re.match(rf" {{{margin}}}(\w+)\s*(?:\(.*?\))?\s*:\s*(.*)", line)
        if match:
            current = match[1]
            descriptions[current] = match[2]
        elif current and line.strip():
            descriptions[current] += f" {line.strip()}"
    return {name: _plain(text) for name, text in descriptions.items()}


def _plain(text: str) -> str:
    """Strip reStructuredText markup and math.

    >>> _plain(r"adds .. math:: \\text{x} * \\log(2\\pi)")
    'adds x * log(2π)'
    """
    text = re.sub(
        r"\\text\{(.*?)\}", r"\1", text.replace(".. math:: ", "").replace("\\pi", "π")
    )
    text = re.sub(r"\\(exp|log)\b", r"\1", text)
    text = re.sub(r":\w+:`(.*?)(?:\s*<.*?>)?`", r"\1", text)
    return re.sub(r"`+(.*?)(?:\s*<.*?>)?`+_?", r"\1", text).strip()
