"""Ctrl+K in a newcomer's words: what they mean comes first, and choosing it does it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.data.config import DataConfig
from app.training.config import TrainingConfig
from app.util import resources
from app.views.shell import search
from app.views.ui import fuzzy
from app.views.ui.dialogs.search import NOTHING, SearchDialog, SearchEntry
from tests.support.whole_window import WholeWindow

# A query, and the keys of the entries that it may mean.
QUERIES = """
nllloss: loss.NLLLoss
adamw: optimizer.AdamW
sgd: optimizer.SGD
adam: optimizer.Adam
rmsprop: optimizer.RMSprop
mnist: data.torchvision.MNIST
confusion: command.show.evaluation
early stopping: setting.patience
mixed precision: setting.amp
fp16: setting.amp
autocast: setting.amp
tutorial: command.lessons
examples: command.gallery
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
out of memory: command.memory
memory usage: command.memory
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
resume training: command.continue
save: command.save
how do I save my model: command.save command.save-weights
export code: command.export
export png: command.export-drawing
onnx: command.open-model command.export
state dict: command.load-weights command.save-weights
load weights: command.load-weights
safetensors: command.save-weights
import a model: command.import
resnet: command.import
pretrained model: command.import
hugging face: command.open-model
freeze: command.canvas.freeze
requires_grad: command.canvas.freeze
transfer learning: command.freeze-but-last
fine-tuning: command.freeze-but-last
custom layer: command.add-layers
sequential: command.block.make
repeat a block: command.block.repeat
undo: command.undo
loss curve: command.show.curves
overfitting: command.show.curves
accuracy curve: command.show.curves
gradient norm: setting.gradient_norm command.show.curves
decision boundary: command.show.playground
gpu memory: command.show.curves
vanishing gradient: command.findings
exploding gradient: command.findings
nan: command.findings
my loss is nan: command.findings
grad is none: command.findings
in-place operation: command.findings
dead units: command.show.layer
dead neurons: command.show.layer
computational graph: command.show.autograd
grad_fn: command.show.autograd
backward graph: command.show.autograd
play backward: command.show.tape command.play-backward
backpropagation: command.show.tape
gradcheck: command.gradcheck-net
leaf tensors: command.snippet lesson.02-leaves
retain_graph: command.snippet
double backward: command.snippet snippet.double_backward
requires_grad propagates: snippet.spreading
hyperparameter search: command.sweep
grid search: command.sweep
lr finder: command.find-rate
which learning rate: command.find-rate
overfit one batch: command.overfit
profiler: command.profile
why is it slow: command.profile
tensorboard: preference.event_files
ddp: command.place.several
multi gpu: command.place.several
slurm: command.watch-run
torch.compile: setting.compile
torch.save: command.save-weights
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
predict: command.show.evaluation
worst samples: command.show.evaluation
activations: command.show.layer
feature maps: command.show.layer
histograms: command.show.layer
number of parameters: command.show.cost
model summary: command.show.cost
flops: command.show.cost
errors: command.show.problems
shape mismatch: command.show.problems
dark mode: command.theme.dark
font size: preference.font_scale
keyboard shortcuts: command.shortcuts
fit the view: command.canvas.frame_all
auto layout: command.canvas.lay_out
rename: command.canvas.rename
projector: command.projector
compare two models: command.show.diff
compare runs: command.show.runs
u-net: example.U-Net
convoluton: layer.nn.Conv2d
dropuot: layer.nn.Dropout
nn.Conv2d: layer.nn.Conv2d
Conv2d(10, 20, 5): layer.nn.Conv2d
log_softmax: layer.F.log_softmax layer.nn.LogSoftmax
global average pooling: layer.nn.AdaptiveAvgPool2d
"""
PAIRS = [
    (query, tuple(keys.split()))
    for query, keys in (line.split(": ", 1) for line in QUERIES.strip().splitlines())
]


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
    for query, meant in PAIRS:
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
    assert len(places) >= 150
    late = {query: place for query, place in places.items() if place}
    assert len(late) <= 0.05 * len(places), late
    assert all(place < 3 for place in late.values()), late


def test_every_phrase_is_of_an_entry(window: WholeWindow) -> None:
    by_key = {entry.key for entry in entries(window)}
    phrases = json.loads(resources.path("search_phrases.json").read_text("utf-8"))
    assert len(phrases) > 100
    assert set(phrases) - by_key == set()


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
        ("confusion", lambda window: window.evaluation.isVisible()),
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
