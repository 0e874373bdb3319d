"""A data loader with two workers, which shuffles and collates."""

import torch
from show import show
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, place):
        x = torch.tensor([place / 160, torch.randn(()).item()])
        return {"x": x, "y": x[:1].square()}


def main():
    torch.manual_seed(16)
    net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adagrad(net.parameters(), 0.05)
    loader = DataLoader(
        Squares(), 16, shuffle=True, num_workers=2, persistent_workers=True
    )
    step = 0
    for _epoch in range(6):
        for batch in loader:
            step += 1
            optimizer.zero_grad()
            loss = nn.functional.huber_loss(net(batch["x"]), batch["y"])
            loss.backward()
            show(step, loss.item(), net=net)
            optimizer.step()


if __name__ == "__main__":
    main()
