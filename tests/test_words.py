"""Texts that users read: terms of the field, one name for one thing, and none of the phrases that said neither."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What is left of texts that users did not understand, with what is said in their place.
PHRASES = {
    r"wants (a|an|the|N|\d|channels|inputs)\b": "expects, needs",
    r"Nothing arrives at": "is not connected",
    r"does not take what|go together|They fit\b": "does not match, match",
    r"would make a loop": "would create a cycle",
    r"does not reach an output. It is left": "is not connected to an output",
    r"one behind the other|side by side, with": "in sequence",
    r"weights of (its|their) own": "own weights, separate weights",
    r"How often .* stands\b| stands? (before|in a row|at step|still)\b": "repeat, is paused before",
    r"What is (to be said|in it|in It)\b": "comment, contents",
    r"in the place of\b": "replaces",
    r"Lay Out All|Mute or Unmute|Freeze or Unfreeze|Unfold or Fold\b": "one checkable command",
    r"Drop the last layer": "remove the last layer",
    r"by heart\b": "overfit",
    r"made data\b": "synthetic data",
    r"Where runs are carried out|Watch a run elsewhere": "run in, attach to a running job",
    r"Backward is through|until you let go\b| let go\b": "finished, freed",
    r"to learn from|to validate with|is to learn\b": "training, validation, to be trained",
    r"Known once the shapes": "available once the input shapes are known",
    r"looks? at them in another way|It computes nothing": "no arithmetic",
    r"What goes in\b|What forward returns\b": "an argument of forward, a result of forward",
    r"is no Python\b": "invalid syntax",
    r"held against": "compared with, evaluated on",
    r"(run|script|it|It|Run) (goes|go|went|has gone) on\b| going on\b|go on with\b": "continues, is in progress",
    r"called what it is|No command is called|is called so\b": "correct, no matching",
    r"so many\b": "every N",
    r"ink on paper where the net learnt": "invert",
    r"pass it by\b": "bypass",
    r"Take off the mean": "subtract the mean",
    r"Why is this \.grad None|Where is \.grad None": "does a gradient arrive, which parameters get no gradient",
    r"As the system|your own lines|was not seen\b": "same as the system, my snippet, unrecorded",
    r"to of unknown shape|is the kind of the node": "a tensor of unknown shape, the class",
    r"did not run through": "forward pass failed",
    r" anew\b": "again",
    r"truth value": "bool",
    r"Trust it no more|and told\b": "revoke trust, and reported",
    r" a person\b| nobody\b| somebody\b": "a user, no process",
    r"[Rr]e-liv": "recompute",
    r"Nothing looked at|Look again": "nothing inspected yet, diagnose again",
    r"no longer than we do|hands on a run": "child process, thread-safe control",
    r"(?<![,:]) …(?! \S| $)": "an ellipsis that follows its word without a space",
    r"\b([Vv]al|[Tt]rain) (loss|accuracy)\b": "validation, training",
}


LABELS = {"val": "validation"}  # of the window, where the whole text is this word


def _texts(file: Path) -> Iterator[tuple[int, str]]:
    """Yield line and value of every string of a module, with the parts of f-strings, and without docstrings."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        )
        if node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ):
            yield node.lineno, node.value


def _phrases(source: str) -> list[str]:
    return [phrase for phrase in PHRASES if re.search(phrase, source)]


def test_no_text_of_the_program_is_one_of_those_that_users_did_not_understand() -> None:
    joined = re.compile(r'"\s+f?"')  # the pieces of one text
    found = [
        f"{file.relative_to(ROOT)}:{line} says {hit[0]!r} in {text[:90]!r}: say {PHRASES[phrase]}"
        for folder in ("app", "tapedeck")
        for file in sorted((ROOT / folder).rglob("*.py"))
        for phrase in _phrases(
            joined.sub("", file.read_text(encoding="utf-8"))
        )  # few files are parsed
        for line, text in _texts(file)
        if " " in text and (hit := re.search(phrase, text))
    ]
    assert not found, "\n".join(found)


def test_the_window_has_one_word_for_one_thing_in_its_labels() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line} says {text!r}: say {LABELS[text]!r}"
        for file in sorted((ROOT / "app" / "views").rglob("*.py"))
        if any(f'"{label}"' in file.read_text(encoding="utf-8") for label in LABELS)
        for line, text in _texts(file)
        if text in LABELS
    ]
    assert not found, "\n".join(found)
