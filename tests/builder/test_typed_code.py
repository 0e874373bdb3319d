"""Python code as nodes: lines and classes become the net that they are, bit for bit, and nothing of them runs."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from app.builder.analysis import analyse
from app.builder.catalog.catalog import catalog
from app.builder.graph import Graph
from app.builder.literals import DType
from app.builder.typed_code import TypedCodeError, call_of, looks_like_code, nodes_of

# Lines, the ops of their nodes, and the number of wires.
LINES = [
    ("nn.Conv2d(10, 20, 5)", "nn.Conv2d", 0),
    ("torch.nn.Linear(320, 50)", "nn.Linear", 0),
    ("self.conv1 = nn.Conv2d(1, 10, kernel_size=5)", "nn.Conv2d", 0),
    (
        ("self.fc1 = nn.Linear(320, 50)\nself.fc2 = nn.Linear(50, 10)"),
        "nn.Linear nn.Linear",
        1,
    ),
    (
        "nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))",
        "nn.Linear nn.ReLU nn.Linear",
        2,
    ),
    (
        (
            "model = nn.Sequential(\n"
            "    nn.Conv2d(1, 8, 3, padding=1),\n"
            "    nn.BatchNorm2d(8),\n"
            "    nn.ReLU(inplace=True),\n"
            "    nn.MaxPool2d(2),\n"
            "    nn.Flatten(),\n"
            "    nn.LazyLinear(10),\n"
            ")"
        ),
        "nn.Conv2d nn.BatchNorm2d nn.ReLU nn.MaxPool2d nn.Flatten nn.Linear",
        5,
    ),
    (
        (
            "model = nn.Sequential(\n"
            "    nn.Conv2d(1, 8, 3, padding=1),\n"
            "    nn.BatchNorm2d(8),\n"
            "    nn.ReLU(inplace=True),\n"
            "    nn.MaxPool2d(2),\n"
            "    nn.Flatten(),\n"
            "    nn.Linear(8 * 14 * 14, 10),\n"
            ")"
        ),
        "nn.Conv2d nn.BatchNorm2d nn.ReLU nn.MaxPool2d nn.Flatten nn.Linear",
        5,
    ),
    (
        (
            "nn.Sequential(OrderedDict([('conv1', nn.Conv2d(1,20,5)), ('relu1', nn.ReLU()),\n"
            "    ('conv2', nn.Conv2d(20,64,5))]))"
        ),
        "nn.Conv2d nn.ReLU nn.Conv2d",
        2,
    ),
    ("x = F.relu(x)", "F.relu", 0),
    (
        (
            "x = F.max_pool2d(F.relu(self.conv1(x)), 2)\n"
            "x = x.view(-1, 320)\n"
            "x = F.log_softmax(x, dim=1)"
        ),
        "F.relu F.max_pool2d Tensor.view F.log_softmax",
        3,
    ),
    ("self.lstm = nn.LSTM(28, 64, num_layers=2, batch_first=True)", "nn.LSTM", 0),
    (
        (
            "layers = []\n"
            "for i in range(3):\n"
            "    layers.append(nn.Linear(16, 16))\n"
            "    layers.append(nn.ReLU())\n"
            "net = nn.Sequential(*layers)"
        ),
        "nn.Linear nn.ReLU nn.Linear nn.ReLU nn.Linear nn.ReLU",
        5,
    ),
    (
        (
            "    self.conv1 = nn.Conv2d(3, 6, 5)\n"
            "    self.pool = nn.MaxPool2d(2, 2)\n"
            "    self.conv2 = nn.Conv2d(6, 16, 5)"
        ),
        "nn.Conv2d nn.MaxPool2d nn.Conv2d",
        2,
    ),
    ("nn.Dropout(p=0.5)", "nn.Dropout", 0),
    ("F.dropout(x, 0.3, training=self.training)", "F.dropout", 0),
]

# Sizes of the inputs, with the batch, and the text of a class.
CLASSES: dict[str, tuple[tuple[tuple[int, ...], ...], str]] = {
    "lenet": (
        ((1, 1, 28, 28),),
        """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.conv2_drop = nn.Dropout2d()
        self.fc1 = nn.Linear(320, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
        x = x.view(-1, 320)
        x = F.relu(self.fc1(x))
        x = F.dropout(x, training=self.training)
        x = self.fc2(x)
        return F.log_softmax(x, dim=1)
""",
    ),
    "cifar": (
        ((2, 3, 32, 32),),
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = torch.flatten(x, 1) # flatten all dimensions except batch
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        x = self.fc3(x)
        return x
""",
    ),
    "fashion": (
        ((2, 1, 28, 28),),
        """
class NeuralNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.linear_relu_stack = nn.Sequential(
            nn.Linear(28*28, 512),
            nn.ReLU(),
            nn.Linear(512, 512),
            nn.ReLU(),
            nn.Linear(512, 10)
        )

    def forward(self, x):
        x = self.flatten(x)
        logits = self.linear_relu_stack(x)
        return logits

model = NeuralNetwork().to("cpu")
print(model)
""",
    ),
    "residual": (
        ((2, 16, 8, 8),),
        """
class ResidualBlock(nn.Module):
    def __init__(self, in_channels, out_channels, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False),
                nn.BatchNorm2d(out_channels),
            )

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out)

block = ResidualBlock(16, 32, stride=2)
""",
    ),
    "resnet": (
        ((2, 3, 16, 16),),
        """
class Block(nn.Module):
    expansion = 1
    def __init__(self, inp, out, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inp, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.down = None
        if stride != 1 or inp != out:
            self.down = nn.Sequential(nn.Conv2d(inp, out, 1, stride, bias=False), nn.BatchNorm2d(out))
    def forward(self, x):
        identity = x if self.down is None else self.down(x)
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return torch.relu(y + identity)

class ResNet(nn.Module):
    def __init__(self, layers=(2, 1), num_classes=10):
        super().__init__()
        self.inplanes = 8
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.layer1 = self._make_layer(8, layers[0])
        self.layer2 = self._make_layer(16, layers[1], stride=2)
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(16, num_classes)

    def _make_layer(self, planes, blocks, stride=1):
        layers = [Block(self.inplanes, planes, stride)]
        self.inplanes = planes
        for _ in range(1, blocks):
            layers.append(Block(self.inplanes, planes))
        return nn.Sequential(*layers)

    def forward(self, x):
        x = self.stem(x)
        x = self.layer1(x)
        x = self.layer2(x)
        x = self.pool(x).flatten(1)
        return self.fc(x)
""",
    ),
    "lstm": (
        ((3, 7, 12),),
        """
class Tagger(nn.Module):
    def __init__(self, size=12, hidden=16, classes=5):
        super().__init__()
        self.lstm = nn.LSTM(size, hidden, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * hidden, classes)

    def forward(self, x):
        out, _ = self.lstm(x)
        out = self.fc(out[:, -1, :])
        return out
""",
    ),
    "attention": (
        ((2, 6, 16),),
        """
class SelfAttention(nn.Module):
    def __init__(self, dim=16, heads=4):
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm = nn.LayerNorm(dim)
    def forward(self, x):
        y, weights = self.attn(x, x, x)
        return self.norm(x + y)
""",
    ),
    "transformer": (
        ((2, 6, 16),),
        """
class EncoderBlock(nn.Module):
    def __init__(self, d_model=16, heads=4, ff=32, dropout=0.0):
        super().__init__()
        self.heads, self.scale = heads, (d_model // heads) ** -0.5
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.proj = nn.Linear(d_model, d_model)
        self.ff = nn.Sequential(nn.Linear(d_model, ff), nn.GELU(), nn.Linear(ff, d_model))
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.drop = nn.Dropout(dropout)

    def attention(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q = q.view(b, n, self.heads, -1).transpose(1, 2)
        k = k.view(b, n, self.heads, -1).transpose(1, 2)
        v = v.view(b, n, self.heads, -1).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * self.scale
        att = F.softmax(att, dim=-1)
        y = (att @ v).transpose(1, 2).reshape(b, n, c)
        return self.proj(y)

    def forward(self, x):
        x = x + self.drop(self.attention(self.norm1(x)))
        x = x + self.ff(self.norm2(x))
        return x
""",
    ),
    "unet": (
        ((1, 1, 16, 16),),
        """
class DoubleConv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.ReLU())
    def forward(self, x):
        return self.net(x)

class UNet(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.down1 = DoubleConv(1, width)
        self.down2 = DoubleConv(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.conv = DoubleConv(2 * width, width)
        self.head = nn.Conv2d(width, 1, 1)
    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        u = self.up(b)
        x = self.conv(torch.cat([u, a], dim=1))
        return torch.sigmoid(self.head(x))
""",
    ),
    "siamese": (
        ((2, 8), (2, 8)),
        """
class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 4)
    def forward(self, a, b):
        a = torch.tanh(self.embed(a))
        b = torch.tanh(self.embed(b))
        return (a - b).abs().sum(dim=1)
""",
    ),
    "mlp_list": (
        ((2, 10),),
        """
class MLP(nn.Module):
    def __init__(self, sizes=(10, 20, 20, 3)):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:])])
    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i < len(self.layers) - 1:
                x = F.relu(x)
        return x
""",
    ),
    "dense": (
        ((1, 4, 8, 8),),
        """
class DenseBlock(nn.Module):
    def __init__(self, channels=4, growth=3, n=3):
        super().__init__()
        self.convs = nn.ModuleList()
        for i in range(n):
            self.convs.append(nn.Conv2d(channels + i * growth, growth, 3, padding=1))
    def forward(self, x):
        features = [x]
        for conv in self.convs:
            new = F.leaky_relu(conv(torch.cat(features, 1)), 0.1)
            features.append(new)
        return torch.cat(features, dim=1)
""",
    ),
    "autoencoder": (
        ((2, 1, 28, 28),),
        """
class AutoEncoder(nn.Module):
    def __init__(self, latent_dim: int = 8) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, latent_dim))
        self.decoder = nn.Sequential(
            nn.Linear(latent_dim, 64), nn.ReLU(), nn.Linear(64, 784), nn.Sigmoid(), nn.Unflatten(1, (1, 28, 28)))
        for m in self.modules_to_init():
            pass
    def modules_to_init(self):
        return []
    def encode(self, x):
        return self.encoder(x)
    def forward(self, x):
        z = self.encode(x)
        return self.decoder(z)
""",
    ),
    "dict": (
        ((2, 8),),
        """
class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.a = nn.Linear(8, 2)
        self.b = nn.Linear(8, 3)
    def forward(self, x):
        h = torch.relu(self.body(x))
        return {"classes": self.a(h), "values": self.b(h)}
""",
    ),
    "embedding": (
        ((2, 6),),
        """
class TextNet(nn.Module):
    def __init__(self, vocab=30, dim=8, classes=4):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=0)
        self.fc = nn.Linear(dim, classes)
    def forward(self, tokens):
        x = self.emb(tokens).mean(dim=1)
        return self.fc(x)
""",
    ),
    "gru": (
        ((3, 7, 12),),
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(12, 16, num_layers=2, batch_first=True)
        self.head = nn.Linear(16, 3)
    def forward(self, x):
        _, h = self.rnn(x)
        return self.head(h[-1])
""",
    ),
    "arith": (
        ((2, 8),),
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)
    def forward(self, x):
        y = 2 * self.a(x) - 1
        z = -y / 3 + x ** 2
        return z.mean(1, keepdim=True) + 0.5
""",
    ),
    "inception": (
        ((2, 4, 8, 8),),
        """
def conv_bn(i, o, k):
    return nn.Sequential(nn.Conv2d(i, o, k, padding=k // 2), nn.BatchNorm2d(o), nn.ReLU())

class Inception(nn.Module):
    def __init__(self, i=4):
        super().__init__()
        self.b1 = conv_bn(i, 4, 1)
        self.b2 = conv_bn(i, 4, 3)
        self.b3 = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), conv_bn(i, 4, 1))
    def forward(self, x):
        outs = [b(x) for b in (self.b1, self.b2, self.b3)]
        return torch.cat(outs, 1)
""",
    ),
    "gan": (
        ((2, 10),),
        """
class Generator(nn.Module):
    def __init__(self, z_dim=10, img=64):
        super().__init__()
        def block(i, o, normalize=True):
            layers = [nn.Linear(i, o)]
            if normalize:
                layers.append(nn.BatchNorm1d(o, 0.8))
            layers.append(nn.LeakyReLU(0.2, inplace=True))
            return layers
        self.model = nn.Sequential(*block(z_dim, 16, normalize=False), *block(16, 32), nn.Linear(32, img), nn.Tanh())
    def forward(self, z):
        return self.model(z)
""",
    ),
    "interpolate": (
        ((1, 3, 8, 8),),
        """
class Up(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding="same")
        self.weight = nn.Parameter(torch.ones(3, 1, 1))
    def forward(self, x):
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        return self.conv(x) * self.weight
""",
    ),
    "permute": (
        ((2, 3, 4, 5),),
        """
class P(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
    def forward(self, x):
        x = x.permute(0, 2, 3, 1).contiguous()
        x = self.fc(x)
        return x.reshape(x.size(0), -1).softmax(dim=-1)
""",
    ),
    "transformer2": (
        ((2, 6, 16),),
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.TransformerEncoderLayer(d_model=16, nhead=4, dim_feedforward=32, dropout=0.0, batch_first=True)
        self.out = nn.Linear(16, 2)
    def forward(self, src):
        return self.out(self.enc(src)[:, 0])
""",
    ),
    "cond": (
        ((2, 8),),
        """
class Net(nn.Module):
    def __init__(self, use_bn=True, activation="relu"):
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.bn = nn.BatchNorm1d(8) if use_bn else nn.Identity()
        if activation == "relu":
            self.act = nn.ReLU()
        elif activation == "tanh":
            self.act = nn.Tanh()
        else:
            raise ValueError(activation)
    def forward(self, x):
        return self.act(self.bn(self.fc(x)))
""",
    ),
}

# Code, the line at fault and words of the reason.
REFUSED = {
    "while": (
        (
            "class N(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.a = nn.Linear(2, 2)\n"
            "    def forward(self, x):\n"
            "        while x.sum() > 1:\n"
            "            x = self.a(x)\n"
            "        return x\n"
        ),
        6,
        "while",
    ),
    "data if": (
        (
            "class N(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.a = nn.Linear(2, 2)\n"
            "    def forward(self, x):\n"
            "        if x.mean() > 0:\n"
            "            return self.a(x)\n"
            "        return x\n"
        ),
        6,
        "known only when the code runs",
    ),
    "unknown op": ("nn.Conv9d(1, 2)", 1, "nn.Conv9d"),
    "bad kw": ("nn.Conv2d(1, 2, 3, colour=4)", 1, "no argument colour"),
    "bad value": ("nn.Conv2d(1, 2, 'big')", 1, "kernel_size expects"),
    "syntax": (("class Net(nn.Module:\n  def forward"), 1, "syntax"),
    "missing": (
        (
            "class Block(nn.Module):\n"
            "    def __init__(self, channels):\n"
            "        super().__init__()\n"
            "        self.c = nn.Conv2d(channels, channels, 3)\n"
            "    def forward(self, x):\n"
            "        return self.c(x)\n"
        ),
        1,
        "channels",
    ),
    "with": (
        (
            "class N(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.a = nn.Linear(2, 2)\n"
            "    def forward(self, x):\n"
            "        with torch.no_grad():\n"
            "            return self.a(x)\n"
        ),
        6,
        "no_grad",
    ),
    "endless": (
        (
            "class N(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.a = nn.Linear(2, 2)\n"
            "    def f(self, x):\n"
            "        return self.f(x)\n"
            "    def forward(self, x):\n"
            "        return self.f(x)\n"
        ),
        0,
        "without an end",
    ),
    "huge range": ("layers = [nn.Linear(2, 2) for _ in range(10 ** 9)]", 1, "too long"),
    "evil": (("import os\nos.system('touch /tmp/evil')"), 2, "os.system"),
}


@pytest.mark.parametrize(("text", "ops", "wires"), LINES)
def test_lines_become_nodes(text: str, ops: str, wires: int) -> None:
    assert looks_like_code(text, catalog())
    graph = nodes_of(text, catalog()).graph
    assert [node.op for node in graph.nodes.values()] == ops.split()
    assert len(graph.edges) == wires


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_becomes_its_net_bit_for_bit(name: str) -> None:
    sizes, text = CLASSES[name]
    model = _model(text).eval()
    inputs = [
        torch.randint(1, 20, size) if "nn.Embedding" in text else torch.randn(size)
        for size in sizes
    ]
    net = _drawn(nodes_of(text, catalog()).graph, inputs).eval()
    theirs, ours = _leaves(model, inputs), _leaves(net, inputs)
    assert len(theirs) == len(ours)
    for their, our in zip(theirs, ours, strict=True):
        our.load_state_dict(their.state_dict())
    with torch.no_grad():
        expected, outputs = _tensors(model(*inputs)), _tensors(net(*inputs))
    assert len(expected) == len(outputs) > 0
    assert all(map(torch.equal, expected, outputs))


@pytest.mark.parametrize("name", REFUSED)
def test_what_only_a_run_can_tell_is_refused_with_its_line(name: str) -> None:
    text, line, reason = REFUSED[name]
    with pytest.raises(TypedCodeError, match=reason.replace(".", r"\.")) as refused:
        nodes_of(text, catalog())
    assert refused.value.line == line


def test_nothing_of_the_code_runs(tmp_path: Path) -> None:
    there = tmp_path / "there"
    for text in (
        f"open({str(there)!r}, 'w')\nnn.Linear(1, 1)",
        f"net = nn.Linear(1, __import__('pathlib').Path({str(there)!r}).touch())",
        f"class Net(nn.Module):\n    import os; os.mkdir({str(there)!r})\n"
        "    def forward(self, x):\n        return x\n",
    ):
        with contextlib.suppress(TypedCodeError):
            nodes_of(text, catalog())
        assert not there.exists()


@pytest.mark.parametrize(
    ("typed", "key", "params"),
    [
        ("conv2d 20 5", "nn.Conv2d", {"out_channels": 20, "kernel_size": 5}),
        (
            "Conv2d(10, 20, 5)",
            "nn.Conv2d",
            {"in_channels": 10, "out_channels": 20, "kernel_size": 5},
        ),
        (
            "conv2d 20 5 padding=2",
            "nn.Conv2d",
            {"out_channels": 20, "kernel_size": 5, "padding": 2},
        ),
        ("linear 10", "nn.Linear", {"out_features": 10}),
        ("dropout 0.3", "nn.Dropout", {"p": 0.3}),
        ("view -1 320", "Tensor.view", {"size": (-1, 320)}),
        ("torch.flatten(x, 1)", "torch.flatten", {"start_dim": 1}),
        ("torch.nn.functional.relu(x)", "F.relu", {}),
    ],
)
def test_a_call_is_an_op_with_its_arguments(
    typed: str, key: str, params: dict[str, Any]
) -> None:
    call = call_of(typed, catalog())
    assert call is not None and (call[0].key, dict(call[1])) == (key, params)


@pytest.mark.parametrize("typed", ["relu", "add a layer", "what (is) this", "", "(("])
def test_words_are_no_call(typed: str) -> None:
    assert call_of(typed, catalog()) is None


@pytest.mark.parametrize(
    "text", ["", "The loss is 0.5 (see above).", "import os\nos.remove('x')", "x = 1"]
)
def test_other_text_is_no_code_to_paste(text: str) -> None:
    assert not looks_like_code(text, catalog())


def test_what_is_left_out_is_said() -> None:
    text = (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.fc = nn.Linear(2, 2)\n        nn.init.zeros_(self.fc.bias)\n"
        "    def forward(self, x):\n        return self.fc(x)\n"
    )
    (left_out,) = nodes_of(text, catalog()).left_out
    assert left_out == "line 5, nn.init.zeros_(self.fc.bias)"


def test_a_layer_that_is_called_twice_is_one_module() -> None:
    graph = nodes_of(CLASSES["siamese"][1], catalog()).graph
    first, second = (n for n in graph.nodes.values() if n.op == "nn.Linear")
    assert second.shares == first.id


def _model(text: str) -> nn.Module:
    names: dict[str, Any] = {"torch": torch, "nn": nn, "F": F}
    names |= {"OrderedDict": OrderedDict, "print": lambda *_values: None}
    before = set(names)
    exec(text, names)
    made = [value for key, value in names.items() if key not in before]
    models = [value for value in made if isinstance(value, nn.Module)]
    classes = [value for value in made if isinstance(value, type)]
    model: nn.Module = models[-1] if models else classes[-1]()
    return model


def _drawn(graph: Graph, inputs: list[Tensor]) -> nn.Module:
    nodes = [node for node in graph.nodes.values() if node.op == "input"]
    for node, tensor in zip(nodes, inputs, strict=True):
        graph = graph.with_param(node.id, "shape", tuple(tensor.shape[1:]))
        if tensor.dtype == torch.int64:
            graph = graph.with_param(node.id, "dtype", DType("int64"))
    names: dict[str, Any] = {}
    exec(analyse(graph, catalog()).source.text, names)
    net: nn.Module = names["Net"]()
    return net


def _leaves(model: nn.Module, inputs: list[Tensor]) -> list[nn.Module]:
    """Return the modules with parameters, in the order in which they are called first."""
    called: list[nn.Module] = []

    def note(module: nn.Module, _inputs: object) -> None:
        if module not in called:
            called.append(module)

    whole = (nn.MultiheadAttention, nn.TransformerEncoderLayer)
    hooks = [
        module.register_forward_pre_hook(note)
        for module in model.modules()
        if isinstance(module, whole) or not list(module.children())
    ]
    with torch.no_grad():
        model(*inputs)
    for hook in hooks:
        hook.remove()
    inner = {id(inside) for each in called for inside in list(each.modules())[1:]}
    return [each for each in called if id(each) not in inner and each.state_dict()]


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return list(value.values()) if isinstance(value, dict) else list(value)
