"""Models for `tests.slow.planted_breaks`: fifteen with planted graph breaks and recompiles, fifteen without any.

A line ends with `# break: PATHS` or `# recompile: PATHS` of the modules in which it is one, `.` for the model itself.
"""

import contextlib
import logging
import time
import warnings

import torch
from torch import nn
from torch.nn import functional as F

WIDTH = 8
CALLS = 0


def positive(x):
    if x.sum() > 0:  # break: .
        return x
    return -x


@torch.compiler.disable
def left_alone(x):
    return x.relu()


class Timer:
    def __enter__(self):
        self.began = time.perf_counter()  # break: .

    def __exit__(self, *_error):
        return None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)


# --- With breaks and recompiles


class Prints(Net):
    def forward(self, x):
        x = self.fc(x)
        print("hidden", x.shape)  # break: .
        return self.out(x)


class Branches(Net):
    def forward(self, x):
        x = positive(self.fc(x))
        largest = x.max().item()  # break: .
        return self.out(x) / max(largest, 1.0)


class ArrayBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        x = self.fc(x)
        print(len(x))  # break: blocks.0 blocks.1
        return x.relu()


class InBlocks(Net):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(ArrayBlock(), ArrayBlock())

    def forward(self, x):
        return self.out(self.blocks(self.fc(x)))


class Disabled(Net):
    def forward(self, x):
        x = left_alone(self.fc(x))  # break: .
        torch._dynamo.graph_break()  # break: .
        return self.out(x)


class Masked(Net):
    def forward(self, x):
        x = self.fc(x)
        x = x + x[x > 0].sum()  # break: .
        rows = torch.nonzero(x)  # break: .
        return self.out(x) + rows.sum()


class Logs(Net):
    def forward(self, x):
        x = self.fc(x)
        logging.getLogger(__name__).info("in forward")  # break: .
        warnings.warn("slow", stacklevel=2)  # break: .
        return self.out(x)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GRU(WIDTH, WIDTH))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        x, _ = self.body(x)  # break: body.1
        return self.out(x)


class Lists(Net):
    def __init__(self):
        super().__init__()
        self.steps = []

    def forward(self, x):
        x = self.fc(x)
        largest = x.amax().tolist()  # break: .
        self.steps.append(1)  # recompile: .
        return self.out(x) + max(largest, 1.0) * 0 + len(self.steps)


class Timed(Net):
    def forward(self, x):
        with Timer():
            x = self.fc(x)
        return self.out(x)


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH)
        self.seen = 0

    def forward(self, x):
        self.seen += 1  # recompile: gate
        return self.fc(x) * self.seen


class Counts(Net):
    def __init__(self):
        super().__init__()
        self.gate = Gate()
        self.flip = False
        self.scale = "a"

    def forward(self, x):
        x = self.gate(self.fc(x))
        self.flip = not self.flip  # recompile: .
        if torch.isnan(x).any():  # break: .
            raise ValueError("nan")
        return self.out(x)


class Names(Net):
    def __init__(self):
        super().__init__()
        self.name = ""

    def forward(self, x):
        time.time()  # break: .
        self.name += "a"  # recompile: .
        return self.out(self.fc(x)) * len(self.name)


class Remembers(Net):
    def __init__(self):
        super().__init__()
        self.before = None
        self.memo = {}

    def forward(self, x):
        x = self.fc(x)
        if self.before is not None:  # recompile: .
            x = x + self.before.mean()
        self.before = torch.ones(3)
        return self.out(x)


class Loops(Net):
    def forward(self, x):  # recompile: .
        rows = [self.fc(x[at]) for at in range(len(x))]
        return self.out(torch.stack(rows))


class Worldly(Net):
    def forward(self, x):
        global CALLS
        CALLS += 1  # recompile: .
        x = self.fc(x) * CALLS
        numbers = x.detach().max().item()  # break: .
        return self.out(x) + max(numbers, 0) * 0  # recompile: .


class Draws(Net):
    def __init__(self):
        super().__init__()
        self.memo = {}
        self.rate = 0.5

    def forward(self, x):
        self.memo[len(self.memo)] = 1  # recompile: .
        x = self.fc(x) + len(self.memo)
        time.sleep(0)  # break: .
        self.rate *= 0.5  # recompile: .
        x = x * self.rate
        input_file = open(__file__)  # break: .
        with contextlib.closing(input_file):  # break: .
            return self.out(x)


# --- Clean


class Plain(Net):
    def forward(self, x):
        return self.out(F.relu(self.fc(x)))


class Normed(Net):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.out(self.drop(self.norm(self.fc(x))))


class Shared(Net):
    def forward(self, x):
        for _ in range(3):
            x = torch.tanh(self.fc(x))
        return self.out(x)


class Residual(Net):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Plain() for _ in range(3)])

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x):
        x = x.unsqueeze(1).expand(-1, 3, -1)
        return self.attention(x, x, x)[0].mean(1)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)

    def forward(self, x):
        return self.layers(x.unsqueeze(1))


class Convolves(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 4, 3, padding=1)
        self.pool = nn.AdaptiveAvgPool1d(2)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.pool(self.conv(x.unsqueeze(1))).flatten(1))


class Chooses(Net):
    def forward(self, x):
        x = self.fc(x)
        return self.out(torch.where(x.sum() > 0, x, -x))


class ByMode(Net):
    def forward(self, x):
        x = self.fc(x)
        if self.training:
            x = F.dropout(x, 0.1)
        return self.out(x)


class Dictionary(Net):
    def forward(self, x):
        hidden = self.fc(x)
        return {"hidden": hidden, "out": self.out(hidden)}


class Optional(Net):
    def forward(self, x, mask=None):
        x = self.fc(x)
        if mask is not None:
            x = x * mask
        return self.out(x)


class Buffered(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x):
        self.steps.add_(1)
        return self.out(self.fc(x)) / self.steps


class Keyed(Net):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleDict({"a": Plain(), "b": Plain()})

    def forward(self, x):
        return sum(head(x) for head in self.heads.values())


class Wide(Net):
    def forward(self, x):
        left, right = self.fc(x).chunk(2, dim=-1)
        return self.out(torch.cat([left * right.sigmoid(), right], dim=-1))


class Einsum(Net):
    def forward(self, x):
        x = self.fc(x)
        return self.out(torch.einsum("ni,nj->nij", x, x).softmax(-1).sum(1))


PLANTED = (
    "Prints Branches InBlocks Disabled Masked Logs Recurrent Lists Timed Counts Names Remembers Loops Worldly Draws"
).split()
CLEAN = (
    "Plain Normed Shared Residual Attends Encoder Convolves Chooses ByMode Dictionary Optional Buffered Keyed Wide "
    "Einsum"
).split()
