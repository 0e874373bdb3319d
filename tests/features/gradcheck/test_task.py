"""gradcheck asked of an engine: of a network and of a model from code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.autograd.errors import CaptureError
from app.engine.client import Engine
from app.engine.requests.capture import CaptureRequest
from app.engine.requests.observe import ModelCapture, Observe
from app.engine.tasks.capture import batch_of
from app.features.gradcheck.compute.gradcheck import check_layer
from app.features.gradcheck.values import (
    GradcheckRequest,
    LayerCall,
    NodeOperation,
    WholeNet,
)
from app.sources.spec import parse_input, parse_source
from tests.support import own_code
from tests.support.opened_models import INPUTS, NETS
from tests.support.training_jobs import job

PATIENCE = 300.0


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.close()


def test_its_answer_is_that_of_this_process_and_it_says_what_it_does(
    engine: Engine,
) -> None:
    batch, progress = CaptureRequest(job()).of_samples(2), list[str]()
    request = GradcheckRequest(batch, LayerCall("linear1"), "linear1")
    report = engine.ask(request, progress.append).result(PATIENCE)
    assert report == check_layer(batch_of(batch), "linear1")
    assert progress[-1].startswith("Checking linear1")
    other = GradcheckRequest(batch, NodeOperation(0, ("Other",)), "it")
    with pytest.raises(CaptureError, match="cannot be run separately"):
        engine.ask(other).result(PATIENCE)


@pytest.mark.parametrize("what", [WholeNet(), LayerCall("one", 2)])
def test_a_model_from_code_is_checked(
    engine: Engine, tmp_path: Path, what: WholeNet | LayerCall
) -> None:
    file = tmp_path / "checked_kinds.py"
    file.write_text(NETS)
    own_code.trust(f"{file}:any")
    inputs = tuple(map(parse_input, INPUTS["Tied"]))
    model = ModelCapture(Observe(parse_source(f"{file}:Tied"), inputs=inputs))
    report = engine.ask(GradcheckRequest(model, what, "it")).result(PATIENCE)
    assert report.passed and any(tensor.elements for tensor in report.inputs)
    assert all(
        tensor.worst is None or tensor.worst.analytic for tensor in report.inputs
    )
