"""Identifiers for user-given names, free of collisions with Python, torch and each other."""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata
from collections.abc import Iterable
from functools import cache

from msgspec import Struct

# Names that the generated source uses itself.
SCAFFOLD = frozenset(
    {
        "self",
        "torch",
        "nn",
        "F",
        "Net",
        "super",
        "forward",
        "unpacked",
        "base64",
        "zlib",
    }
)


# `dir(nn.Module())`, so that a form can name a layer as its code will without torch; a test holds it against torch's.
_MODULE = frozenset(dir(object)) | frozenset(
    """
    T_destination __annotations__ __call__ __dict__ __getattr__ __module__ __setstate__ __weakref__ _apply
    _backward_hooks _backward_pre_hooks _buffers _call_impl _compiled_call_impl _forward_hooks
    _forward_hooks_always_called _forward_hooks_with_kwargs _forward_pre_hooks _forward_pre_hooks_with_kwargs
    _get_backward_hooks _get_backward_pre_hooks _get_name _is_full_backward_hook _load_from_state_dict
    _load_state_dict_post_hooks _load_state_dict_pre_hooks _maybe_warn_non_full_backward_hook _modules
    _named_members _non_persistent_buffers_set _parameters _register_load_state_dict_pre_hook
    _register_state_dict_hook _replicate_for_data_parallel _save_to_state_dict _slow_forward _state_dict_hooks
    _state_dict_pre_hooks _version _wrapped_call_impl add_module apply bfloat16 buffers call_super_init children
    compile cpu cuda double dump_patches eval extra_repr float forward get_buffer get_extra_state get_parameter
    get_submodule half ipu load_state_dict modules mtia named_buffers named_children named_modules
    named_parameters parameters register_backward_hook register_buffer register_forward_hook
    register_forward_pre_hook register_full_backward_hook register_full_backward_pre_hook
    register_load_state_dict_post_hook register_load_state_dict_pre_hook register_module register_parameter
    register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ set_extra_state set_submodule
    share_memory state_dict to to_empty train training type xpu zero_grad
    """.split()
)


@cache
def module_attributes() -> frozenset[str]:
    """Return the attributes of `nn.Module`; a layer of that name would shadow one."""
    return container_attributes() | {
        "forward"
    }  # `self.self` and `self.torch` are allowed


def identifier(text: str, fallback: str = "layer") -> str:
    """Turn a name into the nearest identifier.

    >>> identifier("conv 1"), identifier("3x3"), identifier("class"), identifier("größe"), identifier("'); import os")
    ('conv_1', '_3x3', 'class_', 'größe', 'import_os')
    """
    plain = unicodedata.normalize("NFKC", text)
    word = (
        re.sub(r"_+", "_", re.sub(r"\W", "_", plain)).rstrip("_")
        if plain.strip("_")
        else ""
    )
    word = word if plain.startswith("_") else word.lstrip("_")
    if word and not (word[0].isalpha() or word[0] == "_"):
        word = "_" + word
    if not word.isidentifier():
        word = re.sub(r"\W", "", word.encode("ascii", "ignore").decode()) or fallback
    if not word.isidentifier():
        word = fallback
    # Two leading underscores would be mangled inside a class.
    word = re.sub(r"^__+", "_", word)[:80]
    return word + "_" if keyword.iskeyword(word) else word


def container_attributes() -> frozenset[str]:
    """Return the attributes of every container module, which no submodule may shadow."""
    return _MODULE


class UniqueNames:
    """Hands out identifiers, each once."""

    def __init__(self, reserved: frozenset[str] = frozenset()) -> None:
        self._reserved = reserved
        self._taken = set(reserved)
        self._next: dict[str, int] = {}

    def take(self, text: str, fallback: str = "layer") -> str:
        """Reserve the free identifier nearest to `text`: `conv`, `conv_2`, `conv_3`; `input_` for a reserved word."""
        return self.take_word(identifier(text, fallback))

    def take_word(self, stem: str) -> str:
        """Reserve the free identifier nearest to one that is valid already."""
        stem = stem + "_" if stem in self._reserved else stem
        name, number = stem, self._next.get(stem, 2)
        while name in self._taken:
            name, number = f"{stem}_{number}", number + 1
        self._next[stem] = number
        self._taken.add(name)
        return name

    def first_free(self, candidates: tuple[str, ...]) -> str:
        """Return the first candidate that is not taken, else the first, which `take` then numbers."""
        return next(
            (name for name in candidates if name not in self._taken), candidates[0]
        )


# More dots than this are no path: Python reads brackets in brackets to a depth alone.
DEEPEST_PATH = 16


def path_parts(name: str) -> tuple[str, ...]:
    """Split an attribute path into identifiers and integers; any other name is one part.

    A path consists of words joined by dots; in any other name a dot counts as a space.

    >>> path_parts("layers.0"), path_parts("a.class.norm_"), path_parts("conv"), path_parts("a. b"), path_parts("0.1")
    (('layers', '0'), ('a', 'class_', 'norm_'), ('conv',), ('a_b',), ('0', '1'))
    """
    parts = unicodedata.normalize("NFKC", name).split(".")
    if not len(parts) <= DEEPEST_PATH or not all(
        _WORD.fullmatch(segment) for segment in parts
    ):
        return (identifier(name),)
    if len(parts) == 1 and not _exact(parts[0]):
        return (_part(parts[0]) if parts[0].strip("_") else identifier(name),)
    return tuple(map(_part, parts))


def written(name: str) -> str:
    """Return the attribute path of a node of this name, collisions aside.

    >>> written("layers.0"), written("conv 1")
    ('layers.0', 'conv_1')
    """
    return ".".join(path_parts(name))


_WORD = re.compile(r"\w+(?:-\w+)*")
_HYPHENS = re.compile(r"[A-Za-z0-9]\w*(?:-\w+)+", re.ASCII)


def _exact(text: str) -> bool:
    """Return whether a non-identifier key is valid as it is: an integer, or words joined by hyphens."""
    number = (
        text.isascii()
        and text.isdecimal()
        and len(text) < 10
        and (text == "0" or text[0] != "0")
    )
    return number or (len(text) <= 80 and bool(_HYPHENS.fullmatch(text)))


def _part(text: str) -> str:
    word = text.isidentifier() and not keyword.iskeyword(text)
    if _exact(text) or (word and not text.startswith("__") and len(text) <= 80):
        return text
    return identifier(text)


class Paths:
    """Assigns unique attribute paths to node names; none is both a module and a prefix of another.

    A name without dots is an identifier, as `UniqueNames` makes it. Where `conv` is a module, `conv.1` and `conv.2` are
    `conv_2.1` and `conv_2.2`; where `layers.0` is taken, the next is the first number that no node requests.
    """

    def __init__(self, reserved: frozenset[str], names: Iterable[str]) -> None:
        self._top = _Level(UniqueNames(reserved), set())
        self._wanted: dict[tuple[str, ...], set[int]] = {}
        for *above, last in map(path_parts, names):
            if last.isdecimal():
                self._wanted.setdefault(tuple(above), set()).add(int(last))

    def take(self, name: str) -> str:
        """Reserve the free path nearest to a name."""
        parts = path_parts(name)
        if len(parts) == 1:
            return (
                self._top.take(parts[0])
                if _exact(parts[0])
                else self._top.names.take_word(parts[0])
            )
        level, path = self._top, []
        for i, segment in enumerate(parts[:-1]):
            if segment not in level.inner:
                below = _Level(
                    UniqueNames(container_attributes()),
                    self._wanted.get(parts[: i + 1], set()),
                )
                level.inner[segment] = level.take(segment), below
            key, level = level.inner[segment]
            path.append(key)
        return ".".join((*path, level.take(parts[-1])))


class _Level(Struct):
    """The paths with a common prefix. `wanted` are the numbers that nodes request."""

    names: UniqueNames
    wanted: set[int]
    inner: dict[str, tuple[str, _Level]] = {}
    _numbers: set[int] = set()
    _next: int = 0

    def take(self, segment: str) -> str:
        if not segment.isdecimal():
            return self.names.take_word(segment)
        number = int(segment)
        if number in self._numbers:
            while self._next in self._numbers or self._next in self.wanted:
                self._next += 1
            number = self._next
        self._numbers.add(number)
        return str(number)


def reserved_variables() -> frozenset[str]:
    """Return the names that a local variable of `forward` must not shadow."""
    return SCAFFOLD | frozenset(dir(builtins))
