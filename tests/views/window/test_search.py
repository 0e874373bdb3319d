"""Ctrl+K in a newcomer's words: what they mean comes first, and choosing it does it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app import features
from app.data.config import DataConfig
from app.training.config import TrainingConfig
from app.util import resources
from app.views.shell import feature as search
from app.views.ui import fuzzy
from app.views.ui.dialogs.search import NOTHING, SearchDialog, SearchEntry
from tests.support.whole_window import WholeWindow

FEATURES = Path(features.__file__).parent
# Queries, and the keys of the entries that each may mean; those that mean a feature are below its name.
QUERIES = """
[kernel]
nllloss: loss.NLLLoss
adamw: optimizer.AdamW
sgd: optimizer.SGD
adam: optimizer.Adam
rmsprop: optimizer.RMSprop
mnist: data.torchvision.MNIST
early stopping: setting.patience
mixed precision: setting.amp
fp16: setting.amp
autocast: setting.amp
checkpoint: setting.save_every
help: command.shortcuts
learning rate: command.set-rate
lr: command.set-rate
batch size: setting.batch_size
epochs: setting.epochs
cross entropy: loss.CrossEntropyLoss
mse: loss.MSELoss
bce: loss.BCEWithLogitsLoss loss.BCELoss
huber: loss.HuberLoss
kl divergence: loss.KLDivLoss
dense: layer.nn.Linear
fully connected: layer.nn.Linear
convolution: layer.nn.Conv2d
cnn: layer.nn.Conv2d
dropout: layer.nn.Dropout
batch norm: layer.nn.BatchNorm2d
batch normalization: layer.nn.BatchNorm2d
layer norm: layer.nn.LayerNorm
max pooling: layer.nn.MaxPool2d
average pooling: layer.nn.AvgPool2d
relu: layer.nn.ReLU
sigmoid: layer.nn.Sigmoid
softmax: layer.nn.Softmax
embedding: layer.nn.Embedding
lstm: layer.nn.LSTM
gru: layer.nn.GRU
transformer: layer.nn.Transformer layer.nn.TransformerEncoderLayer
self attention: layer.nn.MultiheadAttention
attention: command.show.attention layer.nn.MultiheadAttention
skip connection: layer.operator.add
residual: layer.operator.add
concat: layer.torch.cat
flatten: layer.nn.Flatten
deconvolution: layer.nn.ConvTranspose2d
activation function: layer.nn.ReLU
gpu: setting.device
cuda: setting.device
gradient clipping: setting.clip_norm
gradient accumulation: setting.accumulate
weight decay: optimizer.AdamW setting.weight_decay
momentum: optimizer.SGD setting.momentum
scheduler: schedule.StepLR
learning rate decay: schedule.StepLR
cosine: schedule.CosineAnnealingLR
one cycle: schedule.OneCycleLR
plateau: schedule.ReduceLROnPlateau
warmup: setting.warmup schedule.LinearLR
data augmentation: transform.RandomHorizontalFlip
flip images: transform.RandomHorizontalFlip
rotate images: transform.RandomRotation
normalize: transform.Normalize
csv: data.file.csv
my own data: data.file.csv
excel: data.file.csv
image folder: data.file.pictures
text file: data.file.text
numpy: data.file.tensors
custom dataset: data.file.dataset
cifar: data.torchvision.CIFAR10
fashion mnist: data.torchvision.FashionMNIST
two moons: data.made.moons
iris: data.sklearn.iris
train: command.run
start training: command.run
how to train: command.run
stop: command.stop
pause: command.pause
freeze: command.canvas.freeze
requires_grad: command.canvas.freeze
undo: command.undo
loss curve: command.show.curves
overfitting: command.show.curves
accuracy curve: command.show.curves
gradient norm: setting.gradient_norm command.show.curves
gpu memory: command.show.curves
vanishing gradient: command.findings
exploding gradient: command.findings
nan: command.findings
my loss is nan: command.findings
grad is none: command.findings
in-place operation: command.findings
computational graph: command.show.autograd
grad_fn: command.show.autograd
backward graph: command.show.autograd
play backward: command.show.tape command.play-backward
backpropagation: command.show.tape
tensorboard: preference.event_files
ddp: command.place.several
multi gpu: command.place.several
slurm: command.watch-run
torch.compile: setting.compile
deterministic: setting.deterministic
random seed: setting.seed
validation split: setting.validation_fraction
test set: setting.test_fraction
class imbalance: setting.class_weights
label smoothing: loss.CrossEntropyLoss
ema: setting.ema
f1 score: metric.f1
roc curve: metric.auroc
r2: metric.r2
dark mode: command.theme.dark
font size: preference.font_scale
keyboard shortcuts: command.shortcuts
fit the view: command.canvas.frame_all
auto layout: command.canvas.lay_out
rename: command.canvas.rename
projector: command.projector
convoluton: layer.nn.Conv2d
dropuot: layer.nn.Dropout
nn.Conv2d: layer.nn.Conv2d
Conv2d(10, 20, 5): layer.nn.Conv2d
log_softmax: layer.F.log_softmax layer.nn.LogSoftmax
global average pooling: layer.nn.AdaptiveAvgPool2d
[blocks]
sequential: command.block.make
repeat a block: command.block.repeat
[compare]
compare two models: command.show.diff
[cost]
number of parameters: command.show.cost
model summary: command.show.cost
flops: command.show.cost
[custom_layers]
custom layer: command.add-layers
[evaluation]
confusion: command.show.evaluation
predict: command.predict
worst samples: command.show.evaluation
[export]
export code: command.export
export png: command.export-drawing
[files]
save: command.save
how do I save my model: command.save command.save-weights
u-net: example.U-Net
[gallery]
examples: command.gallery
[gradcheck]
gradcheck: command.gradcheck-net
[importing]
import a model: command.import
resnet: command.import
pretrained model: command.import
[layer]
dead units: command.show.layer
dead neurons: command.show.layer
activations: command.show.layer
feature maps: command.show.layer
histograms: command.show.layer
[lessons]
tutorial: command.lessons
[memory]
out of memory: command.memory
memory usage: command.memory
profiler: command.profile
why is it slow: command.profile
[opened]
onnx: command.open-model command.export
hugging face: command.open-model
[playground]
decision boundary: command.show.playground
[problems]
errors: command.show.problems
shape mismatch: command.show.problems
[runs]
resume training: command.continue
compare runs: command.show.runs
[snippets]
leaf tensors: command.snippet lesson.02-leaves
retain_graph: command.snippet
double backward: command.snippet snippet.double_backward
requires_grad propagates: snippet.spreading
[sweep]
hyperparameter search: command.sweep
grid search: command.sweep
[trials]
lr finder: command.find-rate
which learning rate: command.find-rate
overfit one batch: command.overfit
[weights]
state dict: command.load-weights command.save-weights
load weights: command.load-weights
safetensors: command.save-weights
transfer learning: command.freeze-but-last
fine-tuning: command.freeze-but-last
torch.save: command.save-weights
"""
GROUPS = set(re.findall(r"^\[(\w+)\]$", QUERIES, re.MULTILINE)) - {"kernel"}


def pairs() -> list[tuple[str, tuple[str, ...]]]:
    """Return the queries with what they may mean, of the features that are there."""
    meant, group = [], ""
    for line in QUERIES.strip().splitlines():
        if line.startswith("["):
            group = line.strip("[]")
        elif group == "kernel" or (FEATURES / group).is_dir():
            query, keys = line.split(": ", 1)
            meant.append((query, tuple(keys.split())))
    return meant


def entries(window: WholeWindow) -> list[SearchEntry]:
    workspace = window.workspace
    return [
        *search.commands(workspace),
        *search.others(workspace, lambda: None, lambda _name: None),
    ]


def opened(window: WholeWindow) -> SearchDialog:
    window.actions_by_key["commands"].trigger()
    return window.findChildren(SearchDialog)[-1]


def test_what_newcomers_mean_comes_first(window: WholeWindow) -> None:
    """First for 95 of 100 queries, among the first three for all."""
    everything = entries(window)
    by_key = {entry.key for entry in everything}
    places: dict[str, int] = {}
    for query, meant in pairs():
        keys = [
            entry.key
            for entry in fuzzy.ranked(
                query, everything, lambda entry: entry.fields, partly=True
            )
        ]
        assert set(meant) & by_key, f"{query}: nothing has a key of {meant}"
        places[query] = min(
            (keys.index(key) for key in meant if key in keys), default=len(keys)
        )
    whole = all((FEATURES / group).is_dir() for group in GROUPS)
    assert len(places) >= (150 if whole else 80)
    late = {query: place for query, place in places.items() if place}
    assert len(late) <= 0.05 * len(places), late
    assert all(place < 3 for place in late.values()), late


def test_every_phrase_is_of_an_entry(window: WholeWindow) -> None:
    by_key = {entry.key for entry in entries(window)}
    groups = json.loads(resources.path("search_phrases.json").read_text("utf-8"))
    phrases = {
        key
        for feature, group in groups.items()
        if feature == "kernel" or (FEATURES / feature).is_dir()
        for key in group
    }
    assert len(phrases) > 80
    assert phrases - by_key == set()


@pytest.mark.parametrize(
    ("typed", "reached"),
    [
        ("adamw", lambda window: training(window).optimizer.name == "AdamW"),
        ("nllloss", lambda window: training(window).loss.name == "NLLLoss"),
        ("f1 score", lambda window: "f1" in training(window).metrics),
        ("two moons", lambda window: data(window).source == "made.moons"),
        (
            "early stopping",
            lambda window: (
                window.focusWidget()
                is window.training_form.run.form.rows["patience"].editor.focusProxy()
            ),
        ),
        (
            "mixed precision",
            lambda window: (
                window.training_form.speed.form.rows["amp"].editor is not None
            ),
        ),
    ],
)
def test_enter_does_what_was_meant(
    qtbot: QtBot,
    window: WholeWindow,
    typed: str,
    reached: Callable[[WholeWindow], bool],
) -> None:
    dialog = opened(window)
    QTest.keyClicks(dialog.field, typed)
    QTest.keyClick(dialog.field, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: reached(window))


def test_a_choice_is_one_step_to_undo(window: WholeWindow) -> None:
    dialog = opened(window)
    QTest.keyClicks(dialog.field, "adamw")
    QTest.keyClick(dialog.field, Qt.Key.Key_Return)
    assert training(window).optimizer.name == "AdamW"
    window.document.undo_stack.undo()
    assert training(window).optimizer.name != "AdamW"


def test_an_empty_list_says_what_to_try(window: WholeWindow) -> None:
    dialog = opened(window)
    QTest.keyClicks(dialog.field, "xqzzk")
    assert dialog.none.isVisible() and dialog.none.text() == NOTHING
    QTest.keyClick(dialog.field, Qt.Key.Key_Return)
    assert dialog.isVisible()


def training(window: WholeWindow) -> TrainingConfig:
    return window.document.project.training


def data(window: WholeWindow) -> DataConfig:
    return window.document.project.data
