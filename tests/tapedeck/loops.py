"""Loops as people write them. Each yields its losses and, by layer, the norms of the gradients at the step."""

from __future__ import annotations

import math
import sys

import torch
from torch import nn

STEPS = 6


def net(*sizes: int) -> nn.Sequential:
    pairs = zip(sizes, sizes[1:], strict=False)
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(a, b), nn.Dropout(0.1), nn.Tanh()) for a, b in pairs)
    )


def norms(*models: nn.Module) -> list[float]:
    """Of each linear layer."""
    layers = [
        one for model in models for one in model.modules() if isinstance(one, nn.Linear)
    ]
    found = []
    for layer in layers:
        gradients = [each.grad for each in layer.parameters() if each.grad is not None]
        found.append(
            torch.cat([g.flatten().double() for g in gradients]).norm().item()
            if gradients
            else float("nan")
        )
    return found


def plain():
    model = net(5, 8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for _ in range(STEPS):
        loss = model(torch.randn(7, 5)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        yield loss.item(), norms(model)
        optimizer.step()
        schedule.step()


def gan():
    maker, judge = net(3, 6, 4), net(4, 6, 1)
    judging, making = (
        torch.optim.Adam(judge.parameters(), 0.01),
        torch.optim.Adam(maker.parameters(), 0.02),
    )
    for _ in range(STEPS):
        made = maker(torch.randn(8, 3))
        judging.zero_grad()
        real = (judge(torch.randn(8, 4)) - 1).square().mean()
        fake = judge(made.detach()).square().mean()
        real.backward()
        fake.backward()
        judged = norms(judge)
        judging.step()
        making.zero_grad()
        loss = (judge(made) - 1).square().mean()
        loss.backward()
        yield real.item() + fake.item(), judged + norms(maker)
        making.step()


def accumulation():
    model = net(5, 8, 1)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    for _ in range(STEPS):
        total = 0.0
        for _ in range(4):
            loss = model(torch.randn(7, 5)).square().mean() / 4
            loss.backward()
            total += loss.item()
        yield total, norms(model)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def lbfgs():
    model = nn.Linear(5, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), 0.5, max_iter=4)
    x, y = torch.randn(20, 5), torch.randn(20, 1)

    def closure():
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        return loss

    for _ in range(STEPS):
        loss = optimizer.step(closure)
        yield loss.item(), norms(model)


def bf16():
    model = net(5, 8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(STEPS):
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(torch.randn(7, 5)).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        yield loss.item(), norms(model)
        optimizer.step()


def scaled():
    model = net(5, 8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for step in range(STEPS):
        loss = model(torch.randn(7, 5)).square().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        if step == 2:
            next(model.parameters()).grad.fill_(
                float("inf")
            )  # a step that the scaler leaves out
        else:
            scale = scaler.get_scale()
            yield loss.item(), [norm / scale for norm in norms(model)]
        scaler.step(optimizer)
        scaler.update()


def several_backwards():
    body, actor, critic = net(5, 8), nn.Linear(8, 2), nn.Linear(8, 1)
    parameters = [*body.parameters(), *actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.RMSprop(parameters, 0.01)
    for step in range(STEPS):
        inside = body(torch.randn(7, 5))
        optimizer.zero_grad()
        value = critic(inside).square().mean()
        value.backward(retain_graph=True)
        policy = (
            torch.distributions.Categorical(logits=actor(inside))
            .log_prob(torch.zeros(7))
            .mean()
            .neg()
        )
        policy.backward()
        for each in body.parameters():
            each.requires_grad_(step % 2 == 1)  # frozen and thawed
        yield value.item() + policy.item(), norms(body, actor, critic)
        optimizer.step()


def _skipping(clear, first=True):
    """Some batches are left out, whose losses are NaN; `clear` forgets their gradients."""
    model = net(5, 8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for batch in range(STEPS + 3):
        clear(model, optimizer) if first else None
        skipped = batch in (0, 3, 4)
        loss = model(torch.randn(7, 5)).square().mean() * (
            float("nan") if skipped else 1.0
        )
        loss.backward()
        if skipped:
            clear(model, optimizer) if not first else None
            continue
        yield loss.item(), norms(model)
        optimizer.step()
        clear(model, optimizer) if not first else None


def skipping():
    yield from _skipping(lambda _model, optimizer: optimizer.zero_grad())


def skipping_after():
    yield from _skipping(
        lambda model, _optimizer: model.zero_grad(set_to_none=False), first=False
    )


def skipping_by_hand():
    def clear(model, _optimizer):
        for each in model.parameters():
            each.grad = None

    yield from _skipping(clear)


def adversarial():
    """A backward to the inputs first, whose gradients of the weights are forgotten."""
    model = net(5, 8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(STEPS):
        x = torch.randn(7, 5, requires_grad=True)
        model(x).square().mean().backward()
        optimizer.zero_grad()
        loss = model((x + 0.1 * x.grad.sign()).detach()).square().mean()
        loss.backward()
        yield loss.item(), norms(model)
        optimizer.step()
        optimizer.zero_grad()


def cleared_by_another():
    """Gradients of one optimizer are cleared while those of the other wait for its step."""
    maker, judge = net(3, 6, 4), net(4, 6, 1)
    judging, making = (
        torch.optim.Adam(judge.parameters(), 0.01),
        torch.optim.Adam(maker.parameters(), 0.02),
    )
    for _ in range(STEPS):
        made = maker(torch.randn(8, 3))
        judging.zero_grad()
        fake = judge(made).square().mean()
        fake.backward(retain_graph=True)
        making.zero_grad()
        loss = (made - 1).square().mean()
        loss.backward()
        yield fake.item() + loss.item(), norms(judge, maker)
        judging.step()
        making.step()


def inside_backward():
    """Each parameter has an optimizer of its own, which steps as soon as its gradient has arrived."""
    model = net(5, 8, 8, 1)
    norms_of, optimizers = (
        {},
        {each: torch.optim.SGD([each], 0.1) for each in model.parameters()},
    )

    def step(parameter):
        norms_of[id(parameter)] = parameter.grad.double().norm().item()
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for each in model.parameters():
        each.register_post_accumulate_grad_hook(step)
    for _ in range(STEPS):
        loss = model(torch.randn(7, 5)).square().mean()
        loss.backward()
        layers = [one for one in model.modules() if isinstance(one, nn.Linear)][
            ::-1
        ]  # as they step
        yield (
            loss.item(),
            [
                math.hypot(*(norms_of[id(each)] for each in one.parameters()))
                for one in layers
            ],
        )


SKIPPING = (skipping, skipping_after, skipping_by_hand)
LOOPS = (
    plain,
    gan,
    accumulation,
    lbfgs,
    bf16,
    scaled,
    several_backwards,
    *SKIPPING,
    adversarial,
    cleared_by_another,
    inside_backward,
)

if __name__ == "__main__":
    for loop in LOOPS:
        torch.manual_seed(3)
        print(
            loop.__name__,
            *(f"{loss.hex()}" for loss, _ in loop()),
            torch.get_rng_state().sum().item(),
        )
    print(sys.argv[1:], sys.stdin.read(), __name__, sys.path[0], sorted(globals())[:9])
    raise KeyError("the end")
