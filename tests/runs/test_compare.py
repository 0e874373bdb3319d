"""Settings of runs side by side: start weights by what they are, not by where each run keeps its copy."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from app.project import file as project_file
from app.runs import compare, store
from app.training.config import StartWeights
from app.util.resources import path as resource_path

EXAMPLE = project_file.read(resource_path("examples", "digits.tape"))


def differing(folder: Path, *starts: StartWeights | None) -> dict[str, tuple[str, ...]]:
    made = []
    for start in starts:
        project = replace(EXAMPLE, training=replace(EXAMPLE.training, start=start))
        made.append(store.begin(folder, project))
        (made[-1].folder / store.PROJECT).write_bytes(project_file.dumps(project))
        (made[-1].folder / store.SOURCE).write_text("class Net: ...", encoding="utf-8")
    return {line.name: line.values for line in compare.settings(made) if line.differs}


def test_start_weights_differ_by_content_and_not_by_the_path_of_a_copy(
    tmp_path: Path,
) -> None:
    first = StartWeights("/a/1.safetensors", "1" * 64, (), "resnet18.pth")
    assert differing(tmp_path, first, replace(first, path="/b/1.safetensors")) == {}
    other, few = (
        replace(first, sha256="2" * 64),
        replace(first, keys=("conv1.weight", "conv1.bias")),
    )
    assert differing(tmp_path, first, other, few, None) == {
        "start weights": (
            "resnet18.pth, 11111111",
            "resnet18.pth, 22222222",
            "resnet18.pth, 2 tensors, 11111111",
            "–",
        )
    }
