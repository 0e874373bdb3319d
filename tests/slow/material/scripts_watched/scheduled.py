"""SGD with momentum, warm-up and cosine, batch norm, gradients clipped, evaluation after each epoch."""

import torch
from show import show
from torch import nn

torch.manual_seed(1)
x, y = torch.randn(128, 1, 12, 12), torch.randint(0, 4, (128,))
convolutions = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
net = nn.Sequential(
    convolutions, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4)
)
optimizer = torch.optim.SGD(
    net.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4
)
warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=10)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 90)
schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], [10])
step = 0
for _epoch in range(12):
    net.train()
    for batch in torch.randperm(128).split(16):
        step += 1
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(net(x[batch]), y[batch], label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        show(step, loss.item(), net=net)
        optimizer.step()
        schedule.step()
    net.eval()
    with torch.no_grad():
        print(
            "validation",
            repr(nn.functional.cross_entropy(net(x), y).item()),
            schedule.get_last_lr(),
        )
