"""One contract for every loss and every optimizer, and torch's own words for what it refuses."""

import ast

import pytest

from app.training.choices import LOSSES, OPTIMIZERS, ChoiceError
from app.training.config import Choice, Schedule
from app.training.events import EpochDone, Failed, Finished
from app.training.registry import (
    check_loss,
    check_optimizer,
    check_schedule,
    loss_call,
    loss_params,
    make_loss,
    make_optimizer,
    optimizer_call,
    optimizer_params,
)
from app.util.frozen import FrozenMap
from tests.support.training_jobs import SMALL_NET, adam, job, net, run


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_is_made_told_and_trains(name):
    params = loss_params(name)
    assert params and {"size_average", "reduce"}.isdisjoint(p.name for p in params)
    reduction = next(p for p in params if p.name == "reduction")
    assert (reduction.kind, reduction.default) == ("choice", "mean")
    assert "none" not in reduction.choices and ("batchmean" in reduction.choices) == (
        name == "KLDivLoss"
    )
    # torch warns that KLDivLoss's default divides by the classes too.
    choice = Choice(
        name, FrozenMap(reduction="batchmean") if name == "KLDivLoss" else FrozenMap()
    )
    check_loss(choice)
    assert ast.parse(loss_call(choice))
    events = run(job(epochs=1, batch_size=700, loss=choice))
    if name == "BCELoss":
        # It wants probabilities, and the net gives logits: torch says so.
        assert (
            isinstance(events[-1], Failed) and "between 0 and 1" in events[-1].message
        )
    else:
        assert isinstance(events[-1], Finished), events[-1]


def test_the_poisson_loss_learns_counts_and_classes():
    import torch

    # The logarithm of the rate, or the rate itself: the loss is least where it is the mean of the counts.
    counts = torch.tensor([[0.0], [1.0], [2.0], [9.0]])
    for log_input, best in ((True, 3.0**0.5), (True, 3.0), (False, 3.0)):
        answer = (
            torch.full((4, 1), best).log() if log_input else torch.full((4, 1), best)
        )
        answer.requires_grad_()
        make_loss(Choice("PoissonNLLLoss", FrozenMap(log_input=log_input)))(
            answer, counts
        ).backward()
        assert (answer.grad.sum().abs() < 1e-5) == (best == 3.0)
    epochs = [
        e
        for e in run(
            job(epochs=15, loss=Choice("PoissonNLLLoss"), optimizer=adam(lr=0.01))
        )
        if isinstance(e, EpochDone)
    ]
    assert (
        epochs[-1].val_accuracy > 0.8 and epochs[-1].train_loss < epochs[0].train_loss
    )
    docs = {param.name: param.doc for param in loss_params("PoissonNLLLoss")}
    assert "exp(input) - target*input" in docs["log_input"] and not any(
        "\\" in doc for doc in docs.values()
    )


# Muon takes matrices alone.
NETS = {
    "Muon": net(
        ["self.linear1 = nn.Linear(64, 10, bias=False)"],
        ["return self.linear1(x.flatten(1))"],
    )
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_is_made_told_and_trains(name):
    params = optimizer_params(name)
    assert params[0].name == "lr" and params[0].kind == "float"
    assert all(param.doc for param in params if param.name not in {"foreach"})
    defaults = {p.name: p.default for p in params}
    choice = Choice(name, FrozenMap(defaults))
    check_optimizer(choice)
    assert ast.parse(optimizer_call(choice))
    last = run(
        job(NETS.get(name, SMALL_NET), epochs=1, batch_size=700, optimizer=Choice(name))
    )[-1]
    if (
        name == "SparseAdam"
    ):  # in torch's own words: the digits give no sparse gradients
        assert (
            isinstance(last, Failed)
            and "does not support dense gradients" in last.message
        )
    else:
        assert isinstance(last, Finished)


def test_the_forms_follow_the_signatures():
    adam = {p.name: p for p in optimizer_params("Adam")}
    assert (adam["betas"].kind, adam["betas"].count, adam["betas"].default) == (
        "literal",
        2,
        (0.9, 0.999),
    )
    assert (adam["amsgrad"].kind, adam["amsgrad"].default) == ("bool", False)
    assert adam["foreach"].optional and adam["weight_decay"].kind == "float"
    assert adam["lr"].doc.startswith("learning rate")
    assert "capturable" not in adam and "params" not in adam
    assert {p.name: p.kind for p in loss_params("CrossEntropyLoss")} == {
        "weight": "literal",
        "ignore_index": "int",
        "reduction": "choice",
        "label_smoothing": "float",
    }


@pytest.mark.parametrize(
    ("choice", "words", "field"),
    [
        (Choice("Adam", FrozenMap(lr=-1.0)), "Invalid learning rate: -1.0", None),
        (
            Choice("Adam", FrozenMap(betas=(2.0, 0.9))),
            "Invalid beta parameter at index 0",
            None,
        ),
        (Choice("Adam", FrozenMap(betas=0.9)), "a tuple of 2 numbers", "betas"),
        (Choice("Adam", FrozenMap(lr="fast")), "it must be a number", "lr"),
        (Choice("Adam", FrozenMap(lr=float("inf"))), "it must be a number", "lr"),
        (Choice("Adam", FrozenMap(lr=10**400)), "it must be a number", "lr"),
        (
            Choice("Adam", FrozenMap(capturable=True)),
            "no parameter “capturable”",
            "capturable",
        ),
        (Choice("SGD", FrozenMap(nesterov=True)), "Nesterov momentum requires", None),
        (Choice("__import__"), "no optimizer “__import__”", None),
    ],
)
def test_what_an_optimizer_refuses_is_said(choice, words, field):
    with pytest.raises(ChoiceError, match=words) as raised:
        check_optimizer(choice)
    assert field is None or raised.value.param == field


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (
            Choice("CrossEntropyLoss", FrozenMap(label_smoothing=2.0)),
            "label_smoothing must be between 0.0 and 1.0",
        ),
        (
            Choice("CrossEntropyLoss", FrozenMap(reduction="none")),
            "one of 'mean', 'sum'",
        ),
        (Choice("MultiMarginLoss", FrozenMap(p=7)), "only p == 1 and p == 2"),
        (Choice("HuberLoss", FrozenMap(delta=True)), "it must be a number"),
        (Choice("Linear"), "no loss “Linear”"),
    ],
)
def test_what_a_loss_refuses_is_said(choice, words):
    with pytest.raises(ChoiceError, match=words):
        check_loss(choice)


@pytest.mark.parametrize(
    ("name", "params", "words", "field"),
    [
        (
            "CosineAnnealingLR",
            {"T_max": 0},
            "T_max cannot be 0, as torch divides by it",
            "T_max",
        ),
        ("StepLR", {"step_size": 0}, "step_size cannot be 0", "step_size"),
        (
            "OneCycleLR",
            {"max_lr": 1e40, "total_steps": 9},
            "OneCycleLR: max_lr=1e\\+40 is too large",
            "max_lr",
        ),
    ],
)
def test_what_a_schedule_refuses_names_its_own_parameter(name, params, words, field):
    schedule = Schedule(Choice(name, FrozenMap(params)), "step")
    with pytest.raises(ChoiceError, match=words) as refused:
        check_schedule(schedule, Choice("Adam", FrozenMap(lr=0.001)))
    assert refused.value.param == field


def test_class_weights_are_numbers_in_the_project_and_a_tensor_in_torch():
    choice = Choice("CrossEntropyLoss", FrozenMap(weight=(1, 2.5)))
    check_loss(choice)
    assert make_loss(choice).weight.tolist() == [1.0, 2.5]
    assert (
        loss_call(choice)
        == "nn.CrossEntropyLoss(weight=torch.tensor((1, 2.5), dtype=torch.float32))"
    )


def test_the_text_and_the_object_are_the_same():
    import torch

    choice = Choice("SGD", FrozenMap(lr=0.05, momentum=0.9, nesterov=True))
    parameter = torch.zeros(1, requires_grad=True)
    made = make_optimizer(choice, [parameter])
    text = optimizer_call(choice, "[parameter]")
    assert text == "torch.optim.SGD([parameter], lr=0.05, momentum=0.9, nesterov=True)"
    assert (
        eval(text, {"torch": torch, "parameter": parameter}).defaults == made.defaults
    )
