"""What a hand does in each lesson: step by step the wrong ways, and the right one."""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec import Struct

from app.training.config import Choice
from app.util.frozen import FrozenMap
from tests.features.lessons.hand import Action, Hand


class Wrong(Struct, frozen=True):
    """Actions after which the goal that has the letters of `opens` is open."""

    opens: str
    actions: tuple[Action, ...]


class Step(Struct, frozen=True):
    """The wrong ways of a step, then the actions that reach its goals."""

    right: tuple[Action, ...]
    wrong: tuple[Wrong, ...] = ()


def answer(text: str, typed: str) -> Action:
    return lambda hand: hand.answer(text, typed)


def wrongly(text: str, typed: str) -> Wrong:
    """A wrong answer."""
    return Wrong(text, (answer(text, typed),))


def done(name: str, *arguments: Any, **named: Any) -> Action:
    """A method of the hand with these arguments."""
    return lambda hand: getattr(hand, name)(*arguments, **named)


def step(*right: Action, wrong: tuple[Wrong, ...] = ()) -> Step:
    return Step(right, wrong)


capture, play, find, train = (
    done(name) for name in ("capture", "play", "find", "train")
)
capture_eval = done("capture", "capture-eval")
snippet = partial(done, "snippet")
change = partial(done, "change")
setting = partial(done, "setting")
optimizer = partial(done, "optimizer")


def bare(name: str) -> Action:
    """The layer begins as torch has it."""

    def act(hand: Hand) -> None:
        from msgspec.structs import replace

        document = hand.window.document
        graph = document.project.graph
        node = replace(graph.nodes[hand.node(name)], inits=FrozenMap())
        document.apply("Init", replace(document.project, graph=graph.with_node(node)))

    return act


TWICE = """w = torch.tensor(1.0, requires_grad=True)
(3 * w).backward()
(3 * w).backward()
"""

SCRIPTS: dict[str, list[Step]] = {
    "01-what-a-tape-is": [
        step(capture),
        step(
            answer("AccumulateGrad", "6"),
            answer("AddmmBackward0", "3"),
            wrong=(wrongly("AccumulateGrad", "4"), wrongly("AddmmBackward0", "6")),
        ),
        step(
            play,
            wrong=(Wrong("played", (done("do", "step-backward"),)),),
        ),
        step(
            answer("doubled", "4"),
            snippet("control_flow"),
            answer("graph longer", "shorter"),
            wrong=(
                wrongly("doubled", "20"),
                Wrong("control_flow", (snippet("spreading"),)),
            ),
        ),
    ],
    "02-leaves": [
        step(
            answer("a = x + y", "no"),
            answer("b = a + z", "yes"),
            snippet(),
            wrong=(wrongly("a = x + y", "yes"), wrongly("b = a + z", "no")),
        ),
        step(
            answer("Is z", "yes"),
            answer("Is b", "no"),
            answer("grad_fn of a", "None"),
            wrong=(wrongly("Is z", "no"), wrongly("grad_fn of a", "AddBackward0")),
        ),
        step(
            snippet("retain_grad"),
            answer("w is", "3"),
            answer("v did", "None"),
            wrong=(wrongly("v did", "1"),),
        ),
        step(
            change({"u.retain_grad()\n": "", 'print("u.grad:", u.grad)\n': ""}),
            wrong=(
                Wrong(
                    "u.grad", (change({"u.retain_grad()\n": "u.retain_grad()\n\n"}),)
                ),
            ),
        ),
        step(
            snippet("subgraph"),
            answer("features", "no"),
            answer("rows", "4"),
            wrong=(wrongly("rows", "8"),),
        ),
    ],
    "03-backward-by-hand": [
        step(
            answer("derivative of v²", "6.2"),
            answer("u.grad equals", "1.2"),
            answer("b is added", "5.6"),
            snippet("retain_grad"),
            wrong=(wrongly("derivative of v²", "3.1"), wrongly("b is added", "5.6")),
        ),
        step(
            snippet("retain_grad"),
            answer("w.grad", "18.6"),
            answer("norm of u.grad", "6.57"),
            wrong=(wrongly("w.grad", "6.2"), wrongly("norm of u.grad", "5.6")),
        ),
        step(
            answer("second row", "12"),
            answer("v @ J", "7.2"),
            snippet("vector_jacobian"),
            wrong=(wrongly("second row", "6"),),
        ),
        step(
            answer("Which norm", "0.0001"),
            capture,
            play,
            wrong=(
                Wrong("played", (capture, done("do", "step-backward"))),
                Wrong("Which norm", (answer("Which norm", "1"), capture, play)),
            ),
        ),
        step(answer("Which layer", "fc3"), wrong=(wrongly("Which layer", "fc1"),)),
        step(
            bare("fc3"),
            capture,
            play,
            find,
            wrong=(Wrong("fc1", (bare("fc1"), capture, play)),),
        ),
    ],
    "04-shapes": [
        step(
            done("add", "input"),
            done("param", "input", shape=(1, 28, 28)),
            wrong=(
                Wrong(
                    "returns 1 28 28",
                    (done("add", "input"), done("param", "input", shape=(28, 28))),
                ),
            ),
        ),
        step(
            answer("How wide", "24"),
            done("add", "conv2d 10 5", behind="input"),
            wrong=(wrongly("How wide", "23"),),
        ),
        step(
            answer("Which width", "12"),
            done("add", "maxpool2d 2", behind="conv1"),
            wrong=(wrongly("Which width", "24"),),
        ),
        step(
            answer("How many numbers", "1440"),
            done("add", "flatten", behind="pool1"),
            done("add", "linear 10"),
            done("add", "output"),
        ),
        step(
            answer("x + y", "5 3 4 7"),
            snippet("broadcast_fits"),
            wrong=(wrongly("x + y", "5 3 4 1"),),
        ),
        step(
            snippet("broadcast_misfit"),
            change({"y = torch.zeros(3, 1, 1)": "y = torch.zeros(2, 1, 1)"}),
            wrong=(
                Wrong(
                    "x.shape is",
                    (
                        snippet("broadcast_misfit"),
                        change(
                            {
                                "x = torch.zeros(5, 2, 4, 1)": "x = torch.zeros(5, 3, 4, 1)"
                            }
                        ),
                    ),
                ),
            ),
        ),
    ],
    "05-a-first-net": [
        step(
            done("add", "input"),
            done("param", "input", shape=(1, 8, 8)),
            wrong=(
                Wrong(
                    "returns 1 8 8",
                    (done("add", "input"), done("param", "input", shape=(64,))),
                ),
            ),
        ),
        step(
            done("add", "flatten", behind="input"),
            done("add", "linear 32"),
            done("add", "relu"),
            done("add", "linear 10"),
            done("add", "output"),
        ),
        step(
            answer("linear 10", "330"),
            wrong=(wrongly("linear 10", "320"), wrongly("linear 10", "42")),
        ),
        step(
            setting(epochs=6),
            optimizer(lr=0.01),
            train,
            wrong=(Wrong("epochs", (setting(epochs=1), train)),),
        ),
        step(),
    ],
    "06-loss-and-rate": [
        step(
            answer("log(1/10)", "2.303"),
            setting(epochs=2),
            train,
            wrong=(wrongly("log(1/10)", "0.1"),),
        ),
        step(optimizer(lr=1e-6), train, wrong=(Wrong("lr is", (optimizer(lr=0.01),)),)),
        step(
            optimizer(lr=10),
            train,
            answer("larger than", "yes"),
            wrong=(wrongly("larger than", "no"),),
        ),
        step(optimizer(lr=0.01), train),
    ],
    "07-overfitting": [
        step(
            answer("half are held", "60"),
            answer("below or above", "below"),
            train,
            wrong=(wrongly("half are held", "120"), wrongly("below or above", "above")),
        ),
        step(
            lambda hand: hand.answer(
                "lowest", str(hand.control.situation.run.best_epoch)
            ),
            wrong=(wrongly("lowest", "100"),),
        ),
        step(
            setting(patience=10),
            train,
            wrong=(Wrong("epochs", (setting(patience=0), train)),),
        ),
        step(
            done("add", "dropout 0.5", behind="relu1"),
            done("add", "dropout 0.5", behind="relu2"),
            optimizer(weight_decay=0.01),
            train,
            wrong=(Wrong("net has", (optimizer(weight_decay=0.01),)),),
        ),
    ],
    "08-train-and-eval": [
        step(
            capture,
            answer("of 1000", "200"),
            answer("1.0 that", "1.25"),
            wrong=(wrongly("1.0 that", "0.8"),),
        ),
        step(
            capture_eval,
            answer("dropout leave", "0"),
            lambda hand: hand.answer(
                "nodes has", str(hand.control.situation.tape.nodes)
            ),
            wrong=(
                Wrong("captured in eval", (capture,)),
                wrongly("dropout leave", "1"),
            ),
        ),
        step(
            answer("AccumulateGrad", "yes"),
            play,
            wrong=(wrongly("AccumulateGrad", "no"),),
        ),
        step(
            done("add", "batchnorm1d", behind="fc1"),
            answer("of 128", "256"),
            done("choose_mode", "train"),
            capture,
            wrong=(
                Wrong(
                    "follow one",
                    (done("add", "batchnorm1d", behind="relu1"), done("remove", "bn1")),
                ),
                wrongly("of 128", "128"),
            ),
        ),
    ],
    "09-no-grad-and-detach": [
        step(
            answer("b was", "no"),
            answer("e = a", "yes"),
            snippet("cutting"),
            wrong=(wrongly("b was", "yes"),),
        ),
        step(
            answer("last number of x.grad", "18"),
            answer("Without", "36"),
            wrong=(wrongly("Without", "18"),),
        ),
        step(
            change({"(a.detach() * a)": "(a * a)"}),
            wrong=(
                Wrong(
                    "x.grad",
                    (
                        change({"(a.detach() * a)": "(a * a.detach())"}),
                        change({"(a * a.detach())": "(a.detach() * a)"}),
                    ),
                ),
            ),
        ),
        step(
            capture,
            answer("tape reach", "2"),
            find,
            answer("node called", "detach1"),
            wrong=(Wrong("node called", (answer("node called", "relu2"),)),),
        ),
        step(
            done("remove", "detach1"),
            capture,
            find,
            wrong=(Wrong("leaves", (capture,)),),
        ),
    ],
    "10-accumulation": [
        step(
            answer("two backward", "6"),
            done(
                "write",
                TWICE,
            ),
            wrong=(
                wrongly("two backward", "3"),
                Wrong(
                    "w.grad is 6",
                    (
                        done(
                            "write",
                            "w = torch.tensor(1.0, requires_grad=True)\n(3 * w).backward()\n",
                        ),
                    ),
                ),
            ),
        ),
        step(
            done(
                "write",
                "w = torch.tensor(1.0, requires_grad=True)\n(3 * w).backward()\nw.grad = None\n(3 * w).backward()\n",
            ),
            wrong=(
                Wrong(
                    "w.grad",
                    (
                        done(
                            "write",
                            TWICE + "w.grad = None\n",
                        ),
                    ),
                ),
            ),
        ),
        step(
            setting(batch_size=16, accumulate=4),
            answer("How many samples", "64"),
            wrong=(Wrong("accumulate", (setting(batch_size=16),)),),
        ),
        step(setting(epochs=1), capture, train),
    ],
    "11-in-place": [
        step(
            answer("h was saved", "1"),
            snippet(),
            answer("Which line", "backward"),
            wrong=(wrongly("Which line", "add_"),),
        ),
        step(
            change({"h.add_(1)": "h = h + 1"}),
            wrong=(
                Wrong(
                    "h.version",
                    (
                        change({"h.add_(1)": "h.mul_(1)"}),
                        change({"h.mul_(1)": "h.add_(1)"}),
                    ),
                ),
            ),
        ),
        step(
            snippet("inplace_leaf"),
            change({"\nw -= 0.1": "\nwith torch.no_grad():\n    w -= 0.1"}),
            wrong=(Wrong("snippet raises", (snippet("inplace_leaf"),)),),
        ),
        step(
            answer("Which version", "3"),
            snippet("versions"),
            answer("Is w.grad", "no"),
            wrong=(wrongly("Which version", "4"),),
        ),
        step(
            answer("Which grad_fn", "CopySlices"),
            snippet("inplace_view"),
            wrong=(wrongly("Which grad_fn", "MulBackward0"),),
        ),
    ],
    "12-a-new-head": [
        step(
            snippet("frozen_resnet18"),
            answer("Linear(512", "51300"),
            wrong=(wrongly("Linear(512", "51200"),),
        ),
        step(
            answer("fc3 has", "650"),
            done("ask", "replace-last", "10"),
            wrong=(Wrong("out_features", (done("ask", "replace-last", "20"),)),),
        ),
        step(
            answer("will be trained", "650"),
            done("do", "freeze-but-last"),
            wrong=(Wrong("Trained parameters", (done("flag", "frozen", "fc1"),)),),
        ),
        step(
            answer("AccumulateGrad", "2"),
            capture,
            wrong=(wrongly("AccumulateGrad", "6"),),
        ),
        step(setting(epochs=5), optimizer(lr=0.01), train),
        step(
            done("flag", "frozen", "fc1", "fc2", on=False),
            optimizer(lr=0.001),
            answer("trained now", "17226"),
            wrong=(
                Wrong(
                    "trained now",
                    (
                        done("flag", "frozen", "fc1", "fc2", on=False),
                        answer("trained now", "650"),
                    ),
                ),
            ),
        ),
    ],
    "13-a-function": [
        step(
            answer("derivative of x³", "12"),
            answer("this backward", "4"),
            snippet("gradcheck_fails"),
            wrong=(wrongly("derivative of x³", "4"),),
        ),
        step(
            change({"grad * x**2": "grad * 3 * x**2"}),
            wrong=(
                Wrong(
                    "snippet raises",
                    (
                        change({"grad * x**2": "grad * 2 * x**2"}),
                        change({"grad * 2 * x**2": "grad * x**2"}),
                    ),
                ),
            ),
        ),
        step(
            snippet("mul_constant"),
            answer("y = 5.5", "5.5"),
            answer("How many values", "2"),
            wrong=(wrongly("How many values", "1"),),
        ),
        step(
            answer("Which of the two", "double"),
            snippet("finite_differences"),
            wrong=(wrongly("Which of the two", "float"),),
        ),
        step(
            snippet("linear_function"),
            answer("x does not", "None"),
            answer("gradcheck", "yes"),
        ),
        step(
            capture,
            done("measure", "gradcheck-net"),
            answer("precision", "float64"),
            wrong=(wrongly("precision", "float32"),),
        ),
    ],
    "14-nan-hunt": [
        step(
            capture,
            find,
            answer("forward or", "backward"),
            answer("At which node", "root"),
            wrong=(wrongly("forward or", "forward"), wrongly("At which node", "fc2")),
        ),
        step(train, answer("Which weights", "gain"), answer("At which x", "0")),
        step(
            done("flag", "muted", "root"),
            capture,
            find,
            wrong=(
                Wrong("NaN or Inf", (done("flag", "muted", "relu1"), capture, find)),
            ),
        ),
        step(
            answer("Behind which", "fc3"),
            answer("gradient of ReLU", "0"),
            wrong=(wrongly("Behind which", "fc1"),),
        ),
        step(bare("fc3"), capture, find, train),
    ],
    "15-memory": [
        step(
            answer("How many parameters", "17226"),
            answer("bytes are they", "68904"),
            done("measure", "memory"),
            wrong=(wrongly("bytes are they", "17226"),),
        ),
        step(
            answer("bytes are the gradients", "68904"),
            answer("Adam's", "2"),
            wrong=(wrongly("Adam's", "1"),),
        ),
        step(
            setting(optimizer=Choice("SGD", FrozenMap(lr=0.1))),
            done("measure", "memory"),
            wrong=(Wrong("optimizer is SGD", (done("measure", "memory"),)),),
        ),
        step(
            setting(batch_size=128),
            answer("activations grow", "2"),
            answer("gradients?", "1"),
            done("measure", "memory"),
            wrong=(wrongly("gradients?", "2"),),
        ),
        step(
            answer("block runs twice", "3"),
            snippet("checkpoint"),
            wrong=(wrongly("block runs twice", "4"),),
        ),
    ],
    "16-two-processes": [
        step(setting(epochs=1), train, wrong=(Wrong("epochs is", ()),)),
        step(
            answer("how many samples", "32"),
            answer("With which", "2"),
            answer("different weights", "no"),
            wrong=(wrongly("With which", "4"),),
        ),
        step(
            lambda hand: setattr(hand.window.settings, "processes", 2),
            train,
            answer("fewer steps", "no"),
            wrong=(wrongly("fewer steps", "yes"),),
        ),
        step(
            done("show", "runs"),
            answer("What differs", "dropout"),
            wrong=(wrongly("What differs", "data"),),
        ),
    ],
}
