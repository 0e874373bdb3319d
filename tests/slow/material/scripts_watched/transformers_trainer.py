"""A small BERT and `transformers.Trainer`, with accumulation; needs transformers and accelerate."""

import tempfile

import torch
from show import show
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

set_seed(22)
config = BertConfig(
    vocab_size=60,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
)
model = BertForSequenceClassification(config)
rows = [
    {"input_ids": torch.randint(0, 60, (8,)), "labels": torch.tensor(number % 2)}
    for number in range(64)
]


class Telling(Trainer):
    def training_step(self, *args, **kwargs):
        losses.append(super().training_step(*args, **kwargs).item())
        return torch.tensor(losses[-1])


class Showing(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, **_others):
        show(state.global_step + 1, sum(losses), model=model)
        losses.clear()


losses = []
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        num_train_epochs=5,
        per_device_train_batch_size=4,
        use_cpu=True,
        gradient_accumulation_steps=2,
        report_to=[],
        save_strategy="no",
        seed=22,
        disable_tqdm=True,
        logging_steps=1000,
    )
    trainer = Telling(model, arguments, train_dataset=rows, callbacks=[Showing()])
    trainer.remove_callback(PrinterCallback)  # prints how long it took
    trainer.train()
