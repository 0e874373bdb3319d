"""SHA-256 checksums of checkpoint contents: torch loads a file with flipped bits silently."""

from __future__ import annotations

import hashlib
from typing import Any

import torch

NAME = "sha256"  # the key under which a checkpoint has them


# Copied into exported scripts, too.
def checksums(state: Any) -> dict[str, str]:
    """Return the SHA-256 of each tensor in nested dicts, lists and tuples, by its path; under "" that of the rest."""
    digests, rest = {}, hashlib.sha256()

    def visit(value: Any, path: str) -> None:
        rest.update(f"{path} {type(value).__name__}\n".encode())
        if isinstance(value, torch.Tensor) and value.is_sparse:
            visit((tuple(value.shape), value._indices(), value._values()), path)
        elif isinstance(value, torch.Tensor):
            plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
            digest = hashlib.sha256(f"{plain.dtype} {tuple(plain.shape)}\n".encode())
            digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
            digests[path] = digest.hexdigest()
        elif isinstance(value, dict):
            for key, child in value.items():
                visit(child, f"{path}/{key}" if path else f"{key}")
        elif isinstance(value, list | tuple):
            for number, child in enumerate(value):
                visit(child, f"{path}/{number}")
        else:
            rest.update(f"{value!r}\n".encode())

    visit(state, "")
    return {**digests, "": rest.hexdigest()}


def difference(state: dict[str, Any]) -> str:
    """Describe which part of a state was corrupted after writing; "" if none, or without checksums."""
    written = state.get(NAME)
    if written is None:
        return ""
    digests = checksums({key: value for key, value in state.items() if key != NAME})
    if not isinstance(written, dict):
        return "its checksums are damaged"
    wrong = [path for path, digest in digests.items() if written.get(path) != digest]
    if not wrong and len(written) == len(digests):
        return ""
    named = [path.replace("/", ".") for path in wrong if path][:3]
    if not named:
        return "its numbers and texts changed since it was written (SHA-256 mismatch)"
    more = f" and {len(wrong) - len(named)} more" if len(wrong) > len(named) else ""
    return f"{', '.join(named)}{more} changed since it was written (SHA-256 mismatch)"
