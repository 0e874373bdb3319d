"""A trainer as people write it: a class with callbacks, early stopping and checkpoints."""

import tempfile
from pathlib import Path

import torch
from show import show
from torch import nn


class Trainer:
    def __init__(self, model, optimizer, patience):
        self.model, self.optimizer, self.patience = model, optimizer, patience
        self.callbacks, self.step, self.best = [], 0, float("inf")

    def fit(self, batches, held_out, epochs, folder):
        waited = 0
        for epoch in range(epochs):
            self.model.train()
            for x, y in batches:
                self.training_step(x, y)
            score = self.evaluate(*held_out)
            for callback in self.callbacks:
                callback(epoch, score)
            waited = 0 if score < self.best else waited + 1
            if score < self.best:
                self.best = score
                states = {
                    "model": self.model.state_dict(),
                    "optimizer": self.optimizer.state_dict(),
                }
                torch.save(states, folder / "best.pt")
            if waited > self.patience:
                break
        self.model.load_state_dict(
            torch.load(folder / "best.pt", weights_only=True)["model"]
        )

    def training_step(self, x, y):
        self.step += 1
        loss = nn.functional.mse_loss(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        show(self.step, loss.item(), model=self.model)
        self.optimizer.step()

    @torch.no_grad()
    def evaluate(self, x, y):
        self.model.eval()
        return nn.functional.mse_loss(self.model(x), y).item()


def main():
    torch.manual_seed(15)
    x = torch.randn(256, 5)
    y = x.square().sum(1, keepdim=True)
    network = nn.Sequential(
        nn.Linear(5, 32), nn.Dropout(0.1), nn.ReLU(), nn.Linear(32, 1)
    )
    trainer = Trainer(network, torch.optim.NAdam(network.parameters(), 1e-2), 3)
    trainer.callbacks.append(lambda epoch, score: print("epoch", epoch, repr(score)))
    with tempfile.TemporaryDirectory() as folder:
        batches = list(zip(x[:192].split(16), y[:192].split(16), strict=True))
        trainer.fit(batches, (x[192:], y[192:]), 10, Path(folder))
        print("best", repr(trainer.evaluate(x[192:], y[192:])))


if __name__ == "__main__":
    main()
