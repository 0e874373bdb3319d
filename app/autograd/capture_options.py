"""Options of a capture: its data, where backward starts, and what differs from a plain forward pass."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

VECTORS = ("ones", "random", "one-hot")


class CaptureOptions(Struct, frozen=True):
    """Options of a capture, except train or eval mode, which is chosen with each capture.

    `data` is "batch" or "random": inputs of the net's own shapes and dtypes, with random targets for the loss. `batch`
    is the number of samples, 0 for the training's batch size. Without `loss` backward starts at the net's outputs,
    those with the indices in `outputs` or all of them, with a vector each: `vector` is one of VECTORS, and "one-hot" is
    1 at `index` of the last dimension and 0 elsewhere. `amp` is "" or a dtype of `torch.autocast`, `checkpoint` the
    paths of modules that run under `torch.utils.checkpoint`.
    """

    data: str = "batch"
    batch: int = 0
    loss: bool = True
    outputs: tuple[int, ...] = ()
    vector: str = "ones"
    index: int = 0
    amp: str = ""
    checkpoint: tuple[str, ...] = ()
    second_order: bool = False
    compile: bool = False

    @property
    def diagnosed(self) -> CaptureOptions:
        """Return the options that diagnostics run with, so that every node has its layer and its line."""
        return replace(self, checkpoint=(), second_order=False, compile=False)

    @property
    def left_out(self) -> str:
        """Say as a sentence which options the diagnostics ignore and why; "" if none."""
        plain = self.diagnosed.differences
        gone = [
            difference for difference in self.differences if difference not in plain
        ]
        if not gone:
            return ""
        which = gone[0] if len(gone) == 1 else f"{', '.join(gone[:-1])} and {gone[-1]}"
        return f"Diagnosed without {which}: the batch runs without it, so that every node has its layer and line."

    @property
    def differences(self) -> tuple[str, ...]:
        """Name what differs from a plain capture, each in PyTorch's words."""
        differences = []
        if self.data == "random":
            differences.append("random inputs")
        if not self.loss:
            numbers = ", ".join(str(index + 1) for index in self.outputs)
            which = (
                f"output {numbers} itself"
                if len(self.outputs) == 1
                else " ".join(filter(None, ("outputs", numbers, "themselves")))
            )
            kind = f"one-hot {self.index}" if self.vector == "one-hot" else self.vector
            differences.append(f"{which}, vector {kind}")
        if self.amp:
            differences.append(f"autocast {self.amp}")
        if self.checkpoint:
            differences.append(f"checkpoint {', '.join(self.checkpoint)}")
        if self.second_order:
            differences.append("create_graph=True")
        if self.compile:
            differences.append("torch.compile")
        return tuple(differences)


PLAIN_OPTIONS = CaptureOptions()
