"""Small models, each with one thing that is easily lost where a model is read: `test_import_silent` imports them.

This is a person's file: it is copied, run and imported as one, so it knows nothing of Tapedeck.
"""

import math
import random
import warnings

import numpy
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.utils import checkpoint as checkpoints
from torch.utils.checkpoint import checkpoint


class Straight(torch.autograd.Function):
    """A sign whose gradient goes straight through."""

    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, grad):
        return grad


class Scaled(torch.autograd.Function):
    """Keeps a tensor and a number for its backward, which is not that of its forward."""

    @staticmethod
    def forward(ctx, x, weight, by):
        ctx.save_for_backward(x, weight)
        ctx.by = by
        return x * weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad * weight * ctx.by, (grad * x).sum(0), None


straight = Straight.apply
CALLS = []
COUNT = 0
TABLE = torch.tensor([0.5, -1.0, 2.0, 0.25])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)


class Body(nn.Module):
    def __init__(self, width: int = 4):
        super().__init__()
        self.a = nn.Linear(width, width)
        self.bn = nn.BatchNorm1d(width)
        self.b = nn.Linear(width, width)

    def forward(self, x):
        return self.b(self.bn(self.a(x)).relu())


# --- Where gradients are switched off


class NoGrad(Net):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 4)

    def forward(self, x):
        with torch.no_grad():
            y = self.stem(x).relu()
        return self.fc(y) + y


class NoGradDecorated(Net):
    def __init__(self):
        super().__init__()
        self.target = Target()

    def forward(self, x):
        return self.fc(x) - self.target(x)


class Target(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    @torch.no_grad()
    def forward(self, x):
        return self.fc(x).tanh()


class SetGrad(Net):
    def forward(self, x):
        with torch.set_grad_enabled(False):
            gate = self.fc(x).sigmoid()
        return x * gate + self.fc(x)


class SetGradInTraining(Net):
    """A backbone that learns while the net is trained, and not otherwise."""

    def forward(self, x):
        with torch.set_grad_enabled(self.training):
            y = self.fc(x)
        return y * 2


class SwitchedOffForGood(Net):
    def forward(self, x):
        y = self.fc(x)
        torch.set_grad_enabled(False)
        return y + self.fc(y)


class InferenceMode(Net):
    def forward(self, x):
        with torch.inference_mode():
            shift = x.mean(0)
        return self.fc(x) + shift


class Teacher(nn.Module):
    """A student and its teacher, one class twice."""

    def __init__(self):
        super().__init__()
        self.student, self.teacher = Body(), Body()

    def forward(self, x):
        with torch.no_grad():
            wanted = self.teacher(x)
        return self.student(x) - wanted


class Momentum(nn.Module):
    """A teacher that follows its student at every call in training."""

    def __init__(self):
        super().__init__()
        self.student, self.teacher = nn.Linear(4, 4), nn.Linear(4, 4)
        self.teacher.requires_grad_(False)

    @torch.no_grad()
    def follow(self):
        for mine, other in zip(
            self.teacher.parameters(), self.student.parameters(), strict=True
        ):
            mine.mul_(0.9).add_(other, alpha=0.1)

    def forward(self, x):
        if self.training:
            self.follow()
        return self.student(x) - self.teacher(x)


class MomentumByData(nn.Module):
    def __init__(self):
        super().__init__()
        self.student, self.teacher = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        for mine, other in zip(
            self.teacher.parameters(), self.student.parameters(), strict=True
        ):
            mine.data = mine.data * 0.9 + other.data * 0.1
        return self.student(x) - self.teacher(x).detach()


class EnableInside(Net):
    def forward(self, x):
        with torch.no_grad():
            y = self.fc(x)
            with torch.enable_grad():
                z = self.fc(y)
        return y * z


class EnabledInASubmodule(Net):
    def __init__(self):
        super().__init__()
        self.energy = Energy()

    def forward(self, x):
        with torch.no_grad():
            y = self.energy(x)
        return self.fc(x) * y


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    @torch.enable_grad()
    def forward(self, x):
        return self.fc(x).square()


class InPlaceWithoutGradient(Net):
    def forward(self, x):
        y = self.fc(x)
        with torch.no_grad():
            y.clamp_(-0.1, 0.1)
        return y * 3


class AsksForGradMode(Net):
    def forward(self, x):
        y = self.fc(x)
        return y * 2 if torch.is_grad_enabled() else y


class AsksWhetherItLearns(Net):
    def forward(self, x):
        y = self.fc(x)
        return y * 2 if y.requires_grad else y


class DetachForms(Net):
    def forward(self, x):
        y = self.fc(x)
        return (
            y.detach() * x + y.data + y.clone().detach_() * 2 + torch.detach(y).square()
        )


class WritesData(Net):
    def forward(self, x):
        y = self.fc(x)
        y.data.clamp_(-0.2, 0.2)
        return y * 2


class ReplacesData(Net):
    def forward(self, x):
        y = self.fc(x)
        y.data = y.data.clamp(-0.2, 0.2)
        return y * 2


class AsksGradient(Net):
    def forward(self, x):
        return self.fc(x.requires_grad_()) * x


# --- What does not learn


class Frozen(Net):
    def __init__(self):
        super().__init__()
        self.stem = Body().requires_grad_(False)
        self.norm = nn.LayerNorm(4).requires_grad_(False)

    def forward(self, x):
        return self.fc(self.norm(self.stem(x)))


class PartlyFrozen(Net):
    def __init__(self):
        super().__init__()
        self.fc.weight.requires_grad_(False)
        self.norm = nn.BatchNorm1d(4)
        self.norm.bias.requires_grad = False

    def forward(self, x):
        return self.norm(self.fc(x))


class FrozenInPart(nn.Module):
    """Of equal blocks the first does not learn."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Body() for _ in range(3))
        self.layers[0].requires_grad_(False)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class FrozenParameter(Net):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4), requires_grad=False)
        self.shift = nn.Parameter(torch.zeros(4))

    def forward(self, x):
        return self.fc(x) * self.scale + self.shift


class FrozenUnused(Net):
    def __init__(self):
        super().__init__()
        self.spare = nn.Linear(4, 2).requires_grad_(False)
        self.partly = nn.Linear(4, 2)
        self.partly.bias.requires_grad_(False)

    def forward(self, x):
        return self.fc(x)


class FrozenRecurrent(Net):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(4, 4, batch_first=True)
        self.rnn.weight_hh_l0.requires_grad_(False)

    def forward(self, x):
        return self.fc(self.rnn(x.unsqueeze(1))[0].squeeze(1))


class FrozenTied(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 4), nn.Linear(4, 4)
        self.down.weight = self.up.weight
        self.up.weight.requires_grad_(False)

    def forward(self, x):
        return self.down(self.up(x).relu())


class FreezesInForward(Net):
    def forward(self, x):
        self.fc.weight.requires_grad_(False)
        return self.fc(x)


class LooseTensorThatLearns(Net):
    def __init__(self):
        super().__init__()
        self.rows = [torch.ones(4, requires_grad=True)]

    def forward(self, x):
        return self.fc(x) * self.rows[0]


# --- Windows of a tensor


class Unfolds(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 3)

    def forward(self, x):
        return self.fc(x.unfold(1, 2, 1))


class UnfoldsByName(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 3)

    def forward(self, x):
        return (
            self.fc(x.unfold(dimension=-1, size=2, step=2)) + x.unfold(-1, 3, 1).sum()
        )


# --- Chance


class Noise(Net):
    def forward(self, x):
        return self.fc(x) + torch.randn(4)


class NoiseOfAnySize(Net):
    def forward(self, x):
        return self.fc(x) + torch.rand(x.shape[0], 4, device=x.device) * torch.randn(
            x.shape
        )


class WholeNumbers(Net):
    def forward(self, x):
        return self.fc(x) * torch.randint(1, 5, (4,)) + torch.randint(high=3, size=(4,))


class Shuffled(Net):
    def forward(self, x):
        return self.fc(x[:, torch.randperm(4)])


class NoiseNumber(Net):
    def forward(self, x):
        return self.fc(x) * torch.rand(1).item()


class NormalNoise(Net):
    def forward(self, x):
        return self.fc(x) + torch.normal(0.0, 1.0, (4,))


class FilledByChance(Net):
    def forward(self, x):
        return self.fc(x) * torch.empty(4).uniform_(0.5, 1.5)


class MaskByChance(Net):
    def forward(self, x):
        return self.fc(x) * torch.bernoulli(torch.full((4,), 0.5))


class OwnGenerator(Net):
    def __init__(self):
        super().__init__()
        self.chance = torch.Generator().manual_seed(5)

    def forward(self, x):
        return self.fc(x) + torch.randn(4, generator=self.chance)


class PythonRandom(Net):
    def forward(self, x):
        return self.fc(x) * random.random()


class PythonChoice(Net):
    def forward(self, x):
        return self.fc(x) if random.choice((True, False)) else x


class PythonGenerator(Net):
    def __init__(self):
        super().__init__()
        self.chance = random.Random(3)

    def forward(self, x):
        return self.fc(x) + self.chance.uniform(-1, 1)


class NumpyRandom(Net):
    def forward(self, x):
        return self.fc(x) + float(numpy.random.normal())


class NumpyGenerator(Net):
    def __init__(self):
        super().__init__()
        self.chance = numpy.random.default_rng(3)

    def forward(self, x):
        return self.fc(x) + torch.from_numpy(self.chance.normal(size=4)).float()


class StochasticDepth(Net):
    def forward(self, x):
        if self.training and torch.rand(1) < 0.5:
            return x
        return x + self.fc(x)


class StochasticDepthByPython(Net):
    def forward(self, x):
        if not self.training or random.random() < 0.5:
            return x + self.fc(x)
        return x


class Seeded(Net):
    def forward(self, x):
        torch.manual_seed(7)
        return self.fc(x) + torch.randn(4)


class SeededInside(Net):
    def forward(self, x):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(7)
            noise = torch.randn(4)
        return self.fc(x) + noise


class DropsAlways(Net):
    """Dropout that goes on in evaluation."""

    def forward(self, x):
        return F.dropout(self.fc(x), 0.5, training=True)


class DropsByDefault(Net):
    def forward(self, x):
        return F.dropout(self.fc(x))


class DropsNever(Net):
    def forward(self, x):
        return F.dropout(self.fc(x), 0.5, False)


class AttentionDropsAlways(Net):
    def forward(self, x):
        y = self.fc(x)[None, None]
        return F.scaled_dot_product_attention(y, y, y, dropout_p=0.5)[0, 0]


class NormDefaults(Net):
    """F.batch_norm follows no mode unless it is told one."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.full((4,), 0.3))
        self.register_buffer("var", torch.full((4,), 2.0))

    def forward(self, x):
        return F.batch_norm(self.fc(x), self.mean, self.var)


# --- Modes


class HoldsItsNorms(nn.Module):
    """A backbone whose statistics stay as they are, in training too."""

    def __init__(self):
        super().__init__()
        self.body, self.head, self.drop = Body(), nn.Linear(4, 2), nn.Dropout(0.5)

    def train(self, mode=True):
        super().train(mode)
        self.body.bn.eval()
        self.drop.eval()
        return self

    def forward(self, x):
        return self.head(self.drop(self.body(x)))


class NeverTrains(nn.Module):
    """A part that stays in evaluation: one flag for whatever is in it."""

    def __init__(self):
        super().__init__()
        self.body, self.head = Held(), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.body(x))


class Held(Body):
    def train(self, mode=True):
        return super().train(False)

    def forward(self, x):
        y = super().forward(x)
        return y * 2 if self.training else y


class EvalInForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = Body(), nn.Linear(4, 2)

    def forward(self, x):
        self.body.eval()
        return self.head(self.body(x))


class TrainDoesMore(Net):
    """Merges what it learnt when it is put into evaluation."""

    def __init__(self):
        super().__init__()
        self.scale = 1.0

    def train(self, mode=True):
        self.scale = 1.0 if mode else 2.0
        return super().train(mode)

    def forward(self, x):
        return self.fc(x) * self.scale


class NestedModes(Net):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        y = self.fc(x)
        if self.training:
            if self.drop.training:
                y = y * 2
            y = y + x
        return y


class ModeInArithmetic(Net):
    def forward(self, x):
        return self.fc(x) * (1 + self.training) + int(self.training)


class ModeByComparison(Net):
    def forward(self, x):
        y = self.fc(x)
        return y * 2 if self.training == True else y  # noqa: E712


class ModeByIdentity(Net):
    def forward(self, x):
        y = self.fc(x)
        return y * 2 if self.training is True else y


class ModeOfALayer(Net):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        y = self.fc(x)
        return y * 3 if self.drop.training else y


class OnlyInTraining(Net):
    def __init__(self):
        super().__init__()
        self.aux = nn.Linear(4, 2)

    def forward(self, x):
        y = self.fc(x)
        return (y, self.aux(y)) if self.training else y


class OnlyInEvaluation(Net):
    def __init__(self):
        super().__init__()
        self.after = nn.Linear(4, 4)

    def forward(self, x):
        y = self.fc(x)
        return y if self.training else self.after(y).softmax(1)


# --- Precision


class Autocast(Net):
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.fc(x)
        return y.to(x.dtype)


class AutocastDecorated(Net):
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def forward(self, x):
        return self.fc(x)


class AutocastElsewhere(Net):
    """On a machine without CUDA this region is none, and on another it is one."""

    def forward(self, x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            y = self.fc(x)
        return y


class AutocastOff(Net):
    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            return self.fc(x)


class DefaultDtype(Net):
    def forward(self, x):
        return self.fc(x) * torch.ones(4, dtype=torch.get_default_dtype())


# --- Hooks


class TensorHook(Net):
    def forward(self, x):
        y = self.fc(x)
        y.register_hook(lambda grad: grad * 0.5)
        return y * x


def looked_at(grad):
    CALLS.append(tuple(grad.shape))


class TensorHookThatLooks(Net):
    def forward(self, x):
        y = self.fc(x)
        if y.requires_grad:
            y.register_hook(looked_at)
        return y


class PreHook(Net):
    def __init__(self):
        super().__init__()
        self.fc.register_forward_pre_hook(lambda module, given: (given[0] * 2,))

    def forward(self, x):
        return self.fc(x)


class ForwardHookThatKeeps(Net):
    def __init__(self):
        super().__init__()
        self.seen = {}
        self.fc.register_forward_hook(self.keep)

    def keep(self, module, given, result):
        self.seen["fc"] = result.detach()

    def forward(self, x):
        return self.fc(x).relu()


class BackwardPreHook(Net):
    def __init__(self):
        super().__init__()
        self.fc.register_full_backward_pre_hook(lambda module, grads: (grads[0] * 3,))

    def forward(self, x):
        return self.fc(x)


class AccumulateHook(Net):
    def __init__(self):
        super().__init__()
        self.fc.weight.register_post_accumulate_grad_hook(halve)

    def forward(self, x):
        return self.fc(x)


def halve(parameter):
    parameter.grad *= 0.5


class WeightNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = parametrizations.weight_norm(nn.Linear(4, 4))

    def forward(self, x):
        return self.fc(x)


class OldSpectralNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.utils.spectral_norm(nn.Linear(4, 4))

    def forward(self, x):
        return self.fc(x)


class TakesAnyNumber(Net):
    """No node has as many inputs as a call has."""

    def forward(self, *xs):
        y = self.fc(xs[0])
        return y * 2 if y.sum() > 0 else y


class Symmetric(nn.Module):
    def forward(self, weight):
        return weight.triu() + weight.triu(1).transpose(-1, -2)


class OwnParametrization(Net):
    def __init__(self):
        super().__init__()
        parametrize.register_parametrization(self.fc, "weight", Symmetric())

    def forward(self, x):
        return self.fc(x)


# --- What is left behind


class Counter(Net):
    def __init__(self):
        super().__init__()
        self.steps = 0

    def forward(self, x):
        self.steps += 1
        return self.fc(x) * min(self.steps, 3)


class Flag(Net):
    """The first call is another than those after it."""

    def __init__(self):
        super().__init__()
        self.begun = False

    def forward(self, x):
        y = self.fc(x)
        if not self.begun:
            self.begun = True
            return y
        return y * 2


class GlobalCounter(Net):
    def forward(self, x):
        global COUNT
        COUNT += 1
        return self.fc(x) * COUNT


class ClassCounter(Net):
    calls = 0

    def forward(self, x):
        type(self).calls += 1
        return self.fc(x) * type(self).calls


class GrowingList(Net):
    def __init__(self):
        super().__init__()
        self.past = []

    def forward(self, x):
        self.past.append(1)
        return self.fc(x) * len(self.past)


class GlobalList(Net):
    def forward(self, x):
        CALLS.append(1)
        return self.fc(x) * len(CALLS)


class LastState(Net):
    """What one call gives goes into the next."""

    def __init__(self):
        super().__init__()
        self.state = None

    def forward(self, x):
        y = self.fc(x)
        if self.state is not None:
            y = y + self.state
        self.state = y.detach().mean(0)
        return y


class LastStateInADict(Net):
    def __init__(self):
        super().__init__()
        self.states = {"h": torch.zeros(4)}

    def forward(self, x):
        y = self.fc(x) + self.states["h"]
        self.states["h"] = y.detach().mean(0)
        return y


class KeepsForLater(Net):
    """What it kept nobody reads in it."""

    def __init__(self):
        super().__init__()
        self.last, self.maps = None, {}

    def forward(self, x):
        self.last = self.fc(x)
        self.maps["fc"] = self.last.relu()
        return self.maps["fc"] * 2


class CachedMask(Net):
    """Made at the first call, and used from then on."""

    def __init__(self):
        super().__init__()
        self.mask = None

    def forward(self, x):
        if self.mask is None or self.mask.size(0) != x.size(1):
            self.mask = torch.ones(x.size(1), x.size(1), dtype=x.dtype).tril()
        return self.fc(x) @ self.mask


class CachedBuffer(Net):
    """A buffer that no state_dict has, made at the first call."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.zeros(1, 1), persistent=False)

    def forward(self, x):
        if self.mask.shape[1] != x.shape[1]:
            self.mask = (
                torch.ones(x.shape[1], x.shape[1]).tril().to(self.fc.weight.dtype)
            )
        return self.fc(x) @ self.mask.expand(x.shape[1], -1)


class BufferSetAtEveryCall(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(4), persistent=False)

    def forward(self, x):
        y = self.fc(x) + self.last
        self.last = y.detach().mean(0)
        return y


class CachedInEvaluation(Net):
    """Computed of the weights once, and let go of whenever the model is brought into a mode."""

    def __init__(self):
        super().__init__()
        self.squares = {}

    @torch.no_grad()
    def train(self, mode=True):
        super().train(mode)
        if self.squares:
            self.squares = {}
        return self

    def forward(self, x):
        if self.training:
            return F.linear(self.fc(x), self.fc.weight.detach().square())
        if "fc" not in self.squares:
            self.squares["fc"] = self.fc.weight.detach().square()
        return F.linear(self.fc(x), self.squares["fc"])


class CachedNoise(Net):
    def __init__(self):
        super().__init__()
        self.noise = None

    def forward(self, x):
        if self.noise is None:
            self.noise = torch.randn(4)
        return self.fc(x) + self.noise


class CachedWeights(Net):
    """Computed of the weights at the first call, and no more."""

    def __init__(self):
        super().__init__()
        self.squares = None

    def forward(self, x):
        if self.squares is None:
            self.squares = self.fc.weight.detach().square()
        return F.linear(self.fc(x), self.squares)


class Ema(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("ema", torch.zeros(4))

    def forward(self, x):
        y = self.fc(x)
        if self.training:
            self.ema.mul_(0.9).add_(y.detach().mean(0), alpha=0.1)
        return y - self.ema


class EmaByCopy(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("ema", torch.zeros(4))

    def forward(self, x):
        y = self.fc(x)
        with torch.no_grad():
            self.ema.copy_(0.9 * self.ema + 0.1 * y.mean(0))
        return y - self.ema


class EmaByData(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("ema", torch.zeros(4))

    def forward(self, x):
        y = self.fc(x)
        self.ema.data = 0.9 * self.ema.data + 0.1 * y.data.mean(0)
        return y


class EmaByAssignment(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("ema", torch.zeros(4))

    def forward(self, x):
        y = self.fc(x)
        self.ema = 0.9 * self.ema + 0.1 * y.detach().mean(0)
        return y - self.ema


class EmaByOut(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("ema", torch.zeros(4))

    def forward(self, x):
        y = self.fc(x)
        torch.add(self.ema, y.detach().mean(0), out=self.ema)
        return y


class EmaInTheDict(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("ema", torch.zeros(4))

    def forward(self, x):
        y = self.fc(x)
        self._buffers["ema"] += y.detach().mean(0)
        return y


class CountsCalls(Net):
    """A buffer of whole numbers that nothing reads."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x):
        self.calls += 1
        return self.fc(x)


class RegistersInForward(Net):
    def forward(self, x):
        if not hasattr(self, "scale"):
            self.register_buffer("scale", torch.full((4,), 2.0))
        return self.fc(x) * self.scale


class Projected(Net):
    """Weights brought back to length one at every call."""

    def forward(self, x):
        with torch.no_grad():
            self.fc.weight.copy_(F.normalize(self.fc.weight, dim=1))
        return self.fc(x)


class ReplacedParameter(Net):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x):
        self.scale = nn.Parameter(torch.tensor([0.5, 1.0, 1.5, 2.0]))
        return self.fc(x) * self.scale


class PlainTensorInPlace(Net):
    def __init__(self):
        super().__init__()
        self.scale = torch.ones(4)

    def forward(self, x):
        self.scale *= 0.5
        return self.fc(x) * self.scale


class ConstantWrittenLater(Net):
    """A tensor that is used, changed, and used again."""

    def forward(self, x):
        shift = torch.tensor([1.0, 2.0, 3.0, 4.0])
        y = self.fc(x) + shift
        shift += 1
        return y * shift


class WritesIntoAConstant(Net):
    def forward(self, x):
        found = torch.tensor([0.0, 0.0, 0.0, 0.0])
        found[1] = self.fc(x).sum()
        found.add_(x.mean(0))
        return x * found


class WritesIntoEmpty(Net):
    def forward(self, x):
        found = torch.empty(x.shape[0], 4, dtype=x.dtype)
        found[:] = self.fc(x)
        return found * 2


class WritesIntoATable(Net):
    def forward(self, x):
        TABLE.add_(0.1)
        return self.fc(x) * TABLE


# --- Functions and libraries


class ApplyByName(Net):
    def forward(self, x):
        return straight(self.fc(x))


class ApplyOnTheClass(Net):
    apply_it = staticmethod(Straight.apply)

    def forward(self, x):
        return self.apply_it(self.fc(x))


class ApplyAsDefault(Net):
    def forward(self, x, act=Straight.apply):
        return act(self.fc(x))


class ApplyInAnAttribute(Net):
    def __init__(self):
        super().__init__()
        self.act = Straight.apply

    def forward(self, x):
        return self.act(self.fc(x))


class FunctionWithContext(Net):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((4,), 0.5))

    def forward(self, x):
        return Scaled.apply(self.fc(x), self.weight, 3.0)


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.body = (
            nn.Linear(4, 4),
            nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh()),
        )

    def forward(self, x):
        return checkpoint(self.body, self.stem(x), use_reentrant=False)


class CheckpointedByReentry(Checkpointed):
    def forward(self, x):
        return checkpoints.checkpoint(self.body, self.stem(x), use_reentrant=True)


class CheckpointedNorm(nn.Module):
    """What runs in it runs twice, and moves its statistics twice."""

    def __init__(self):
        super().__init__()
        self.stem, self.body = nn.Linear(4, 4), Body()

    def forward(self, x):
        return checkpoint(self.body, self.stem(x), use_reentrant=False)


class CheckpointedAtTheInput(nn.Module):
    """By reentry nothing in it learns unless the input asks for its gradient."""

    def __init__(self):
        super().__init__()
        self.body, self.head = Body(), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(checkpoints.checkpoint(self.body, x, use_reentrant=True))


class InstanceForward(Net):
    """Another forward than that of the class."""

    def __init__(self):
        super().__init__()
        self.fc.forward = self.doubled

    def doubled(self, x):
        return F.linear(x, self.fc.weight * 2, self.fc.bias)

    def forward(self, x):
        return self.fc(x)


class Closure(Net):
    """A function that has the model in it."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((4,), 0.5))
        self.act = lambda x: self.fc(x) * self.scale

    def forward(self, x):
        return self.act(x)


class Functional(Net):
    def forward(self, x):
        return F.linear(x, self.fc.weight, self.fc.bias) + torch.func.functional_call(
            self.fc, {"weight": self.fc.weight * 2}, x
        )


class Penalty(Net):
    """Reads its parameters by iteration."""

    def forward(self, x):
        return self.fc(x) + sum(one.square().sum() for one in self.parameters())


class ParameterByKey(Net):
    def forward(self, x):
        return F.linear(
            x, self.fc._parameters["weight"], dict(self.named_parameters())["fc.bias"]
        )


class NewestParameter(Net):
    """A weight that is computed and put in the place of the parameter."""

    def __init__(self):
        super().__init__()
        self.raw = nn.Parameter(torch.full((4, 4), 0.1))
        del self.fc.weight

    def forward(self, x):
        self.fc.weight = self.raw.tanh()
        return self.fc(x)


# --- Ways that the example takes


class TryExcept(Net):
    """What cannot be followed is no fault of the model, and not what it caught."""

    def forward(self, x):
        y = self.fc(x)
        try:
            if y.sum() > 0:
                y = y * 2
        except Exception:
            y = y - 1
        return y


class TryNumber(Net):
    def forward(self, x):
        y = self.fc(x)
        try:
            scale = float(y.mean())
        except (RuntimeError, TypeError, ValueError):
            scale = 1.0
        return y * scale


class TryShape(Net):
    def forward(self, x):
        y = self.fc(x)
        try:
            return y.view(y.size(0), 3, 3)
        except RuntimeError:
            return y.view(y.size(0), 2, 2)


class AsksAttribute(Net):
    def forward(self, x):
        return self.fc(x.tensors if hasattr(x, "tensors") else x)


class OverSamples(Net):
    """A step for every sample of the batch."""

    def forward(self, x):
        return torch.stack([row * (1 + len(row)) for row in self.fc(x)])


class OverSampleNumbers(Net):
    def forward(self, x):
        y = self.fc(x)
        return torch.stack([y[i] for i in range(x.shape[0])])


class DividesByBatch(Net):
    def forward(self, x):
        return (
            self.fc(x).sum(0, keepdim=True).expand(len(x), 4)
            / len(x)
            * math.sqrt(x.shape[0])
        )


class OverSteps(Net):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(1, 4)

    def forward(self, x):
        state = torch.zeros(x.shape[0], 4, dtype=x.dtype)
        for t in range(x.shape[1]):
            state = self.cell(x[:, t : t + 1], state)
        return self.fc(state)


class ByShape(Net):
    def forward(self, x):
        if x.shape[1] > 3:
            x = x * 2
        return self.fc(x)


class ByNone(Net):
    def forward(self, x, mask=None):
        y = self.fc(x)
        return y if mask is None else y * mask


class ReturnsMore(Net):
    def forward(self, x):
        return self.fc(x), None, 3


class Warns(Net):
    def forward(self, x):
        warnings.warn("an old form", stacklevel=2)
        return self.fc(x)


class ByNumbers(Net):
    """Whole numbers that are joined bit by bit."""

    def forward(self, x):
        low = torch.arange(4, device=x.device) & 1
        high = torch.arange(4, device=x.device) | 2
        return self.fc(x) * low + high * ~low


class InputInPlace(Net):
    def forward(self, x):
        part = x[:, 1:3]
        part.mul_(2)
        return self.fc(x)


class WholeBuffers(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("order", torch.tensor([2, 0, 3, 1]))
        self.register_buffer("mask", torch.tensor([True, False, True, True]))
        self.register_buffer(
            "loose", torch.tensor([1.5, 2.5, 3.5, 4.5]), persistent=False
        )

    def forward(self, x):
        return self.fc(x)[:, self.order].masked_fill(self.mask, 0.5) * self.loose


class SharedTwice(Net):
    """One module with other arguments."""

    def __init__(self):
        super().__init__()
        self.part = Powered()

    def forward(self, x):
        return self.part(x, 2.0) + self.part(self.fc(x), 3.0)


class Powered(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x, by: float):
        return self.fc(x).abs() ** by


class TiedLater(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = Body(), Body()
        self.b.a.weight = self.a.b.weight
        self.b.b = self.a.a

    def forward(self, x):
        return self.b(self.a(x))


class OrderOfUse(nn.Module):
    """Registered in another order than it runs."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)
        self.scale = nn.Parameter(torch.ones(4))
        self.blocks = nn.ModuleList([Backwards(), Backwards()])
        self.stem = nn.Linear(4, 4)
        self.spare = nn.Linear(4, 3)
        self.bias = nn.Parameter(torch.zeros(4))

    def forward(self, x):
        x = self.stem(x) + self.bias
        for block in self.blocks:
            x = block(x)
        return self.head(x * self.scale)


class Backwards(nn.Module):
    def __init__(self):
        super().__init__()
        self.second, self.first = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.second(self.first(x).relu())
