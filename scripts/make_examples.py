"""The bundled examples, written anew from what is said here: `python scripts/make_examples.py`.

A test makes the graphs again and compares them with the files. `digits.tape`, which the window opens first, was drawn
by hand and is left alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from app.builder.analysis import analyse
from app.builder.arrange import GAP, GRID, ROW_WIDTH, Size
from app.builder.blocks import Block, with_blocks
from app.builder.catalog.catalog import Catalog, Param, catalog
from app.builder.edits import edits
from app.builder.expressions import Expr
from app.builder.graph import Node
from app.builder.literals import DType
from app.builder.results import Analysis
from app.data.config import DataConfig, Transform
from app.data.sources import MNIST
from app.project import sketch
from app.project.file import write
from app.project.project import Project
from app.training.config import Choice, TrainingConfig
from app.util.frozen import FrozenMap
from app.util.resources import path as resource_path

STANDS_IN = FrozenMap(stand_in=True)  # until the data are downloaded
CE, NLL, BCE = (
    Choice("CrossEntropyLoss"),
    Choice("NLLLoss"),
    Choice("BCEWithLogitsLoss"),
)


class Sketch(sketch.Sketch):
    """A sketch of an example, or of a block of one."""

    def __init__(
        self, shape: tuple[int, ...], name: str = "input", *blocks: Block
    ) -> None:
        super().__init__(
            Project(blocks=FrozenMap({block.name: block for block in blocks}))
        )
        self.add("input", name, shape=shape)

    def again(self, owner: str, name: str, source: str) -> str:
        """The module of a node called a second time, with the same weights."""
        added = self.add(self.project.graph.nodes[owner].op, name, source)
        self.project = edits.changed(
            self.project, self.project.graph.with_shared(added, owner)
        )
        return added

    def times(self, count: int) -> str:
        """The last node, repeated."""
        graph = self.project.graph
        self.project = edits.changed(
            self.project, graph.with_node(replace(graph.nodes[self.last], repeat=count))
        )
        return self.last

    def block(self, name: str, note: str, *params: Param) -> Block:
        """What was drawn as a block."""
        self.then("output", "y")
        return Block(name, self.project.graph, params=params, note=note)

    def finish(
        self,
        output: str,
        name: str,
        notes: str,
        training: TrainingConfig,
        data: DataConfig,
    ) -> Project:
        self.then("output", output)
        return replace(
            self.project, name=name, notes=notes, training=training, data=data
        )


def training(epochs: int, loss: Choice = CE, **optimizer: Any) -> TrainingConfig:
    name = optimizer.pop("name", "Adam")
    return TrainingConfig(
        epochs=epochs,
        optimizer=Choice(name, FrozenMap(optimizer or {"lr": 0.001})),
        loss=loss,
    )


def mnist_net() -> Project:
    net = Sketch((1, 28, 28))
    net.then("nn.Conv2d", "conv1", out_channels=10, kernel_size=5)
    net.then("F.max_pool2d", "pool1", kernel_size=2)
    net.then("F.relu", "relu1")
    net.then("nn.Conv2d", "conv2", out_channels=20, kernel_size=5)
    net.then("nn.Dropout2d", "conv2_drop")
    net.then("F.max_pool2d", "pool2", kernel_size=2)
    net.then("F.relu", "relu2")
    net.then("Tensor.view", "view", size=(-1, 320))
    net.then("nn.Linear", "fc1", out_features=50)
    net.then("F.relu", "relu3")
    net.then("nn.Linear", "fc2", out_features=10)
    net.then("F.log_softmax", "log_softmax", dim=1)
    notes = (
        "PyTorch's MNIST example: two convolutions, dropout of whole channels, log_softmax with the negative "
        "log-likelihood. Its data, MNIST, are downloaded (12 MB) only when you confirm it (Training, Data). "
        "Until then it trains on a stand-in: scikit-learn's small digits, enlarged."
    )
    plan = training(10, NLL, name="SGD", lr=0.01, momentum=0.5)
    usual = (Transform("Normalize", FrozenMap(mean=(0.1307,), std=(0.3081,))),)
    data = DataConfig(
        MNIST, options=STANDS_IN, train_transforms=usual, eval_transforms=usual
    )
    return net.finish("log_probs", "MNIST net", notes, plan, data)


def cifar_net() -> Project:
    net = Sketch((3, 32, 32))
    net.then("nn.Conv2d", "conv1", out_channels=6, kernel_size=5)
    net.then("F.relu", "relu1")
    net.then("nn.MaxPool2d", "pool1", kernel_size=2)
    net.then("nn.Conv2d", "conv2", out_channels=16, kernel_size=5)
    net.then("F.relu", "relu2")
    net.then("nn.MaxPool2d", "pool2", kernel_size=2)
    net.then("Tensor.view", "view", size=(-1, 400))
    net.then("nn.Linear", "fc1", out_features=120)
    net.then("F.relu", "relu3")
    net.then("nn.Linear", "fc2", out_features=84)
    net.then("F.relu", "relu4")
    net.then("nn.Linear", "fc3", out_features=10)
    notes = (
        "The net of PyTorch's CIFAR-10 tutorial, for 3×32×32 colour photographs in ten classes, normalised. "
        "Its data, CIFAR-10, are downloaded (170 MB) only when you confirm it (Training, Data). Until then "
        "it trains on a stand-in: generated images of ten coloured shapes."
    )
    plan = training(10, name="SGD", lr=0.001, momentum=0.9)
    half = (Transform("Normalize"),)
    data = DataConfig(
        "torchvision.CIFAR10",
        options=STANDS_IN,
        train_transforms=half,
        eval_transforms=half,
    )
    return net.finish("logits", "CIFAR-10 net", notes, plan, data)


def mlp() -> Project:
    net = Sketch((1, 8, 8))
    net.then("nn.Flatten", "flatten")
    net.then("nn.Linear", "fc1", out_features=128)
    net.then("nn.ReLU", "relu1")
    net.then("nn.Dropout", "drop1", p=0.2)
    net.then("nn.Linear", "fc2", out_features=64)
    net.then("nn.ReLU", "relu2")
    net.then("nn.Linear", "fc3", out_features=10)
    notes = "A multilayer perceptron: the 64 pixels of a digit as one row, two hidden layers, one logit per class."
    return net.finish("logits", "MLP on digits", notes, training(20), DataConfig())


def _norm_conv(
    net: Sketch, number: int, source: str, channels: int | Expr, **params: Any
) -> str:
    conv = net.add(
        "nn.Conv2d",
        f"conv{number}",
        source,
        out_channels=channels,
        bias=False,
        **params,
    )
    return net.add("nn.BatchNorm2d", f"bn{number}", conv)


CHANNELS = Expr("channels")


def _residual() -> Block:
    """Two convolutions and what came in."""
    net = Sketch((32, 8, 8), "x")
    came_in = net.last
    _norm_conv(net, 1, came_in, CHANNELS, kernel_size=3, padding=1)
    way = _norm_conv(
        net, 2, net.then("nn.ReLU", "relu1"), CHANNELS, kernel_size=3, padding=1
    )
    net.add("operator.add", "add", way, came_in)
    net.then("nn.ReLU", "relu2")
    return net.block(
        "Residual",
        "What it learns is added to what came in.",
        Param("channels", "int", 32, minimum=1),
    )


def _downsample() -> Block:
    """A residual block that halves the picture; its shortcut is a convolution too."""
    net = Sketch((32, 8, 8), "x")
    came_in = net.last
    _norm_conv(net, 1, came_in, CHANNELS, kernel_size=3, stride=2, padding=1)
    way = _norm_conv(
        net, 2, net.then("nn.ReLU", "relu1"), CHANNELS, kernel_size=3, padding=1
    )
    short = net.add(
        "nn.Conv2d",
        "shortcut",
        came_in,
        out_channels=CHANNELS,
        kernel_size=1,
        stride=2,
        bias=False,
    )
    short = net.add("nn.BatchNorm2d", "bn3", short)
    net.add("operator.add", "add", way, short)
    net.then("nn.ReLU", "relu2")
    note = "Half the picture, more channels: the shortcut is a convolution of 1×1 with stride 2."
    return net.block("Downsample", note, Param("channels", "int", 64, minimum=1))


def residual_net() -> Project:
    net = Sketch((1, 8, 8), "input", _residual(), _downsample())
    _norm_conv(net, 1, net.last, 32, kernel_size=3, padding=1)
    net.then("nn.ReLU", "relu1")
    net.then("block.Residual", "stage1")
    net.times(3)
    net.then("block.Downsample", "down")
    net.then("block.Residual", "stage2", channels=64)
    net.times(2)
    net.then("nn.AdaptiveAvgPool2d", "avgpool", output_size=1)
    net.then("nn.Flatten", "flatten")
    net.then("nn.Linear", "fc", out_features=10)
    notes = (
        "Residual blocks as in ResNet: the output of a block is added to its input. One block is defined once and "
        "used three times in stage1 and, with 64 channels, twice in stage2; open it with Enter. The convolutions have "
        "no bias, since BatchNorm would subtract it."
    )
    return net.finish(
        "logits", "Residual net on digits", notes, training(12), DataConfig()
    )


def _conv(net: Sketch, number: int, source: str, channels: int) -> str:
    conv = net.add(
        "nn.Conv2d",
        f"conv{number}",
        source,
        out_channels=channels,
        kernel_size=3,
        padding=1,
    )
    return net.add("nn.ReLU", f"relu{number}", conv)


def unet() -> Project:
    net = Sketch((1, 64, 64))
    skips = [_conv(net, 1, net.last, 16)]
    for number, channels in ((2, 32), (3, 64), (4, 128)):
        net.then("nn.MaxPool2d", f"pool{number - 1}", kernel_size=2)
        skips.append(_conv(net, number, net.last, channels))
    skips.pop()
    for number, channels in ((5, 64), (6, 32), (7, 16)):
        up = net.then(
            "nn.ConvTranspose2d",
            f"up{number - 4}",
            out_channels=channels,
            kernel_size=2,
            stride=2,
        )
        joined = net.add("torch.cat", f"cat{number - 4}", skips.pop(), up, dim=1)
        _conv(net, number, joined, channels)
    net.then("nn.Conv2d", "head", out_channels=1, kernel_size=1)
    notes = (
        "A small U-Net: three downsampling and three upsampling steps, with a skip connection at each size. It "
        "returns one logit per pixel: whether the pixel is in one of the generated ellipses and rectangles. An epoch "
        "takes a few seconds on a CPU."
    )
    data = DataConfig("made.shapes", options=FrozenMap(count=320))
    return net.finish(
        "mask", "U-Net", notes, replace(training(5, BCE), batch_size=16), data
    )


def _encoder_layer() -> Block:
    """Attention and a feed-forward net, each with a residual connection and a norm."""
    net = Sketch((8, 64), "x")
    source = net.last
    attn = net.add(
        "nn.MultiheadAttention",
        "attn",
        source,
        source,
        source,
        num_heads=Expr("heads"),
        need_weights=False,
    )
    net.add("operator.add", "add1", attn, source)
    seen = net.then("nn.LayerNorm", "ln1")
    net.then("nn.Linear", "fc1", out_features=Expr("width * 2"))
    net.then("nn.GELU", "gelu")
    wide = net.then("nn.Linear", "fc2", out_features=Expr("width"))
    net.add("operator.add", "add2", wide, seen)
    net.then("nn.LayerNorm", "ln2")
    note = "Each value looks at all others; then each is changed by itself. Both are added to what came in."
    params = Param("width", "int", 64, minimum=1), Param("heads", "int", 4, minimum=1)
    return net.block("EncoderLayer", note, *params)


def transformer() -> Project:
    net = Sketch((1, 8, 8), "input", _encoder_layer())
    net.then("Tensor.view", "rows", size=(-1, 8, 8))
    embedded = net.then("nn.Linear", "embed", out_features=64)
    places = net.add("parameter", "positions", shape=(8, 64), fill="normal", std=0.02)
    net.add("operator.add", "placed", embedded, places)
    net.then("block.EncoderLayer", "encoder")
    net.times(2)
    net.then("torch.mean", "mean", dim=(1,))
    net.then("nn.Linear", "fc", out_features=10)
    notes = (
        "A small transformer: a digit is read as a sequence of 8 rows with 8 values each. Attention ignores the order "
        "of the rows, so a learned embedding of each of the 8 positions is added. One encoder layer is defined once "
        "and used twice, with LayerNorm after each sum (post-norm, as first published)."
    )
    return net.finish(
        "logits", "Transformer on digits", notes, training(20), DataConfig()
    )


def siamese() -> Project:
    net = Sketch((1, 8, 8), "first")
    first, second = net.last, net.add("input", "second", shape=(1, 8, 8))
    layers = [
        net.add("nn.Conv2d", "conv", first, out_channels=32, kernel_size=3, padding=1),
        net.then("nn.ReLU", "relu"),
        net.then("nn.MaxPool2d", "pool", kernel_size=2),
        net.then("nn.Flatten", "flatten"),
        net.then("nn.Linear", "embed", out_features=64),
    ]
    ends = [net.last]
    net.last = second
    for layer in layers:
        net.again(layer, f"{net.project.graph.nodes[layer].name}_2", net.last)
    ends.append(net.last)
    net.add("operator.sub", "difference", *ends)
    net.then("torch.abs", "distance")
    net.then("nn.Linear", "head", out_features=2)
    notes = (
        "Do two images show the same digit? A siamese net: both pass through the same layers with shared weights, and "
        "the distance of their embeddings is classified. The data have a field for each input, first and second."
    )
    return net.finish(
        "logits", "Siamese net on digits", notes, training(15), DataConfig("made.pairs")
    )


def _sequence(net: Sketch, name: str, tokens: int, length: int, source: str) -> str:
    """Embed token ids as 64 values, with a position embedding."""
    embedded = net.add(
        "nn.Embedding", f"embed_{name}", source, num_embeddings=tokens, embedding_dim=64
    )
    places = net.add(
        "parameter", f"places_{name}", shape=(length, 64), fill="normal", std=0.02
    )
    return net.add("operator.add", f"placed_{name}", embedded, places)


def translator() -> Project:
    net = Sketch((18,), "written")
    graph, written = net.project.graph, net.last
    long = {"dtype": DType("int64"), "low": 0, "high": 39}
    net.project = edits.changed(
        net.project, graph.with_node(_with(graph.nodes[written], **long))
    )
    padding = net.add("input", "padding", shape=(18,), dtype=DType("bool"))
    so_far = net.add("input", "so_far", shape=(10,), **{**long, "high": 12})
    memory = net.add(
        "nn.TransformerEncoderLayer",
        "encoder",
        _sequence(net, "written", 39, 18, written),
        nhead=4,
        dim_feedforward=128,
        dropout=0.0,
    )
    net.feed(padding, memory, "src_key_padding_mask")
    answer = _sequence(net, "so_far", 12, 10, so_far)
    causal = net.add("buffer", "ones", shape=(10, 10), fill="ones")
    causal = net.add("torch.triu", "above", causal, diagonal=1)
    causal = net.add("Tensor.to", "causal", causal, dtype=DType("bool"))
    decoder = net.add(
        "nn.TransformerDecoderLayer",
        "decoder",
        answer,
        memory,
        nhead=4,
        dim_feedforward=128,
        dropout=0.0,
    )
    net.feed(causal, decoder, "tgt_mask")
    net.feed(padding, decoder, "memory_key_padding_mask")
    net.last = decoder
    net.then("nn.Linear", "head", out_features=11)
    notes = (
        "An encoder reads a date such as “3 march 1997”, and a decoder writes it as “1997-03-03”, one character after "
        "the other. Two masks: the padding mask marks the empty positions of the text, and the causal mask keeps each "
        "position of the answer from attending to later ones. The data have a field for each of the three inputs."
    )
    plan = training(20, lr=0.002)
    return net.finish(
        "logits", "Encoder-decoder on dates", notes, plan, DataConfig("made.dates")
    )


def _with(node: Node, **params: Any) -> Node:
    return replace(node, params=node.params.update(params))


EXAMPLES: tuple[Callable[[], Project], ...] = (
    mnist_net,
    cifar_net,
    mlp,
    residual_net,
    unet,
    transformer,
    siamese,
    translator,
)


ROW_WIDTHS: dict[str, float] = {"Encoder-decoder on dates": 2400.0}

# The two arms of the U side by side, "-" for a place left free. Lines of a grid share their columns.
GRIDS: dict[str, tuple[str, ...]] = {
    "U-Net": (
        "input conv1 relu1 - cat3 conv7 relu7 head mask",
        "pool1 conv2 relu2 - cat2 conv6 relu6 up3",
        "pool2 conv3 relu3 - cat1 conv5 relu5 up2",
        "pool3 conv4 relu4 up1",
    ),
}
LINE = 136.0  # from the ports of one line to those of the next


def laid_out(project: Project) -> Project:
    """With positions for the sizes that the canvas draws. Needs an application object."""
    ops = with_blocks(catalog(), project.blocks)
    blocks = {
        name: _placed(block, ops, analyse(block.graph, ops))
        for name, block in project.blocks.items()
    }
    project = replace(project, blocks=FrozenMap(blocks))
    return _placed(project, ops, analyse(project.graph, ops), project.name)


def _placed(sheet: Any, ops: Catalog, analysis: Analysis, name: str = "") -> Any:
    """A sheet laid out with the sizes that its nodes have when shapes are known."""
    from app.project.document import Document
    from app.views.canvas.canvas import Canvas
    from app.views.selection import Selection

    document = Document(Project(graph=sheet.graph))
    canvas = Canvas(document, Selection(), ops)
    canvas.set_analysis(analysis)
    if name in GRIDS:
        return edits.move_nodes(
            sheet, on_grid(document.project, canvas.scene.sizes(), GRIDS[name])
        )
    canvas.commands.lay_out(ROW_WIDTHS.get(name, ROW_WIDTH))
    return edits.changed(sheet, positions=document.project.positions)


def on_grid(
    project: Project, sizes: Mapping[str, Size], grid: tuple[str, ...]
) -> dict[str, tuple[float, float]]:
    """Top left corners: columns as wide as their widest node and a gap, the ports of a line on one height."""
    ids = {node.name: node.id for node in project.graph.nodes.values()}
    lines = [line.split() for line in grid]
    places, x = {}, 0.0
    for column in range(max(map(len, lines))):
        names = [
            (row, line[column]) for row, line in enumerate(lines) if column < len(line)
        ]
        members = [(row, ids[name]) for row, name in names if name != "-"]
        for row, node in members:
            places[node] = (x, row * LINE - sizes[node].anchor)
        x = -(-(x + max(sizes[node].width for _, node in members) + GAP) // GRID) * GRID
    return places


def main(folder: Path) -> None:
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from app.views.pictures.headless_pictures import application

    held = application()
    for make in EXAMPLES:
        project = laid_out(make())
        write(project, folder / f"{project.name}.tape")
        print(project.name)
    held.quit()


if __name__ == "__main__":
    main(resource_path("examples"))
