"""The diagnostics of a snippet: of all up to its first backward pass, with its leaves as parameters."""

from __future__ import annotations

from typing import Any

from app.features.snippets.compute.run import run
from app.features.snippets.values import Snippet
from tests.features.snippets.snippet_answers import ran

LOOP = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.drop, self.b = nn.Linear(4, 8), nn.Dropout(1.0), nn.Linear(8, 1)
    def forward(self, x):
        return self.b(self.drop(self.a(x)))
net = Net().eval()
scale = torch.ones(1, requires_grad=True)
optimizer = torch.optim.SGD([*net.parameters(), scale], 0.1)
for step in range(2):
    loss = (net(torch.randn(5, 4)) * scale.detach()).pow(2).mean()
    optimizer.zero_grad()
    loss.register_hook(lambda _: print("in a hook"))
    loss.backward()
    optimizer.step()
    print(step)
"""


def test_a_training_loop_is_looked_at_up_to_its_first_backward_and_in_the_modes_it_set() -> (
    None
):
    answer = ran(LOOP, diagnose=True)
    (finding,) = answer.findings.found
    assert (finding.title, finding.line) == ("scale", 11) and "detach" in finding.cure
    states = {name: one.state for name, one in answer.findings.paths.answers.items()}
    assert states["net.a.weight"] == "flows", (
        "in train mode the dropout would pass nothing"
    )
    assert states["scale"] == "none" and answer.findings.ladder.rungs
    assert answer.output == "in a hook\n0\nin a hook\n1\n", (
        "what is printed there is said once"
    )


def test_a_write_in_place_before_backward_is_found_at_its_line() -> None:
    found = ran(
        "w = torch.ones(3, requires_grad=True)\nh = w.sigmoid()\nh.add_(1)\nh.sum().backward()",
        diagnose=True,
    )
    assert found.error is not None and [
        (one.kind, one.line) for one in found.findings.found
    ] == [("in place", 3)]


def test_a_text_that_ends_itself_is_looked_at_up_to_there_and_an_interrupt_harms_nothing() -> (
    None
):
    text = "import sys\nw = torch.zeros(2, requires_grad=True)\nloss = (w * 0).sum()\n"
    ended, whole = ran(f"{text}sys.exit()", diagnose=True), ran(text, diagnose=True)
    assert ended.findings.found == whole.findings.found and ended.findings.found
    assert (
        ran(f"{text}raise KeyboardInterrupt", diagnose=True).undiagnosed
        == "KeyboardInterrupt"
    )


def test_a_text_without_leaves_that_require_a_gradient_is_not_diagnosed() -> None:
    answer = ran("x = torch.ones(3)\ny = x * 2", diagnose=True)
    assert answer.findings is None and "no parameter to look at" in answer.undiagnosed


CHECKED = """x = torch.randn(3, dtype=torch.double, requires_grad=True)
print(torch.autograd.gradcheck(torch.exp, (x,)))
w = torch.ones(3, dtype=torch.double, requires_grad=True)
y = x * w
torch.autograd.gradcheck(torch.exp, (x,))
(y + w.detach()).sum().backward()
"""


def test_gradcheck_writes_nothing_that_stays_and_its_passes_are_not_those_of_the_text() -> (
    None
):
    answer = ran(CHECKED, diagnose=True)
    assert answer.output == "True\n" and not answer.findings.found
    assert {name: one.state for name, one in answer.findings.paths.answers.items()} == {
        "x": "flows",
        "w": "flows",
    }
    kept = ran(CHECKED.replace("(y +", "x.data[0] += 1\n(y +"), diagnose=True)
    assert [(one.kind, one.line) for one in kept.findings.found] == [("silent", 6)], (
        "a write that stays is found"
    )


TEXT = """
import torch
def net():
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
"""


def test_the_graph_of_a_files_function_draws_as_its_findings_do() -> None:
    text = (
        f"{TEXT}\nseen = []\ndef watched():\n    made = net()\n"
        "    made[1].register_forward_hook(lambda m, i, o: seen.append((o == 0).tolist()))\n    return made\n"
    )
    answers: dict[str, Any] = {}

    def execute(tree: Any, name: str, scope: dict[str, Any]) -> None:
        exec(compile(tree, name, "exec"), scope)
        answers["seen"] = scope["seen"]

    run(
        Snippet(text, "net.py", "watched", (((3, 4), "float32"),), findings=True),
        execute,
    )
    masks = answers["seen"]
    assert len(masks) > 2 and all(mask == masks[0] for mask in masks)
