"""Where an operation was called, as plain data."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from app.util.language import tr


class OpLocation(Struct, frozen=True):
    """The location of an operation. `op` is torch's name ("detach"); `layer` the innermost module's path, `call` counts
    its calls.

    `node` is the drawing's node. `line` is that of the generated text, or of `file` if given; `code` is the stripped
    line. `in_loss` means after the net's forward.
    """

    op: str = ""
    layer: str = ""
    call: int = 0
    node: str | None = None
    line: int | None = None
    code: str = ""
    file: str = ""
    in_loss: bool = False

    @property
    def where(self) -> str:
        """Phrase for a sentence: "at line 12" or "in layer conv1" or "in the loss"."""
        if self.line is not None:
            named = self.file and not self.file.startswith(
                "<"
            )  # typed code has no file
            if named:
                file = Path(self.file).name
                return tr("at line {line} of {file}", line=self.line, file=file)
            return tr("at line {line}", line=self.line)
        if self.layer:
            return tr("in layer {layer}", layer=self.layer)
        return tr("in the loss") if self.in_loss else tr("in the network")
