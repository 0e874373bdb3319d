"""gradcheck in the window: asked for with the mouse, stopped, forgotten with the batch."""

from __future__ import annotations

from app.features.gradcheck.feature import GRADCHECK
from app.project.project import Project
from tests.support import own_layers_nets as own
from tests.support.findings import button, capture, click, done, inspector_text, net


def test_gradcheck_of_a_layer_of_a_node_and_of_the_whole_net(window, qtbot) -> None:
    graph = own.chain(
        [
            ("input", {"shape": (1, 8, 8)}),
            ("nn.Conv2d", {"out_channels": 2, "kernel_size": 3}),
            ("nn.Flatten", {}),
            ("nn.Linear", {"out_features": 10}),
            ("output", {}),
        ]
    )
    control = capture(qtbot, window, graph)
    gradcheck = window.gradcheck
    conv = next(
        node for node in window.room.tape.nodes if node.name.startswith("Convolution")
    )
    window.room.reveal(conv.id)
    assert "1 of 64 samples. Training state is untouched." in inspector_text(window)
    click(button(window, "gradcheck"))
    assert control.page.page == GRADCHECK and control.working
    done(qtbot, control)
    report = gradcheck.report
    assert (
        report is not None
        and report.passed
        and {row.dtype for row in report.table} == {"float32", "float64"}
    )
    assert len(gradcheck.page.inputs.rows) == len(report.inputs)
    assert {given.name for given in report.inputs} == {"conv2d2.weight", "conv2d2.bias"}
    assert (
        "is correct" in gradcheck.page.verdict.text()
        and "is correct" in inspector_text(window)
    )
    window.room.scene.choose("node:n2")
    click(button(window, "gradcheck"))
    done(qtbot, control)
    assert gradcheck.report.what == "layer conv2d2"
    click(control.page.run)
    done(qtbot, control)
    assert gradcheck.report.what == "the whole network" and gradcheck.report.passed


def test_it_says_what_to_do_is_stopped_and_forgotten_with_the_project(
    window, qtbot
) -> None:
    window.actions_by_key["gradcheck-net"].trigger()
    window.actions_by_key["gradcheck-here"].trigger()
    control, gradcheck = window.findings_control, window.gradcheck
    assert not control.working and control.page.empty.isVisible(), (
        "without a batch there is a word, and no fault"
    )
    graph = net(("nn.Tanh", {}))
    capture(qtbot, window, graph)
    gradcheck.run()
    click(control.page.stop)
    done(qtbot, control)
    report = gradcheck.report
    assert report is None or report.cancelled or report.passed
    gradcheck.run()
    window.document.new(Project(name="other", graph=graph))
    assert not control.working and gradcheck.report is None


def test_its_commands_stand_among_those_of_findings(window) -> None:
    texts = [
        action.objectName()
        for menu in window.menuBar().actions()
        if menu.text() == "&Autograd"
        for action in menu.menu().actions()
    ]
    place = texts.index("gradcheck-net")
    assert (
        texts[place - 1] == "what-if-checkpoint"
        and texts[place + 1] == "gradcheck-here"
    )
