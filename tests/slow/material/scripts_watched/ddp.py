"""DistributedDataParallel on two ranks over gloo."""

import torch
import torch.distributed as dist
from show import show
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(9)
model = DistributedDataParallel(
    nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
)
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
torch.manual_seed(100 + rank)
others = []
for step in range(1, 61):
    loss = nn.functional.cross_entropy(
        model(torch.randn(16, 10)), torch.randint(0, 3, (16,))
    )
    optimizer.zero_grad()
    loss.backward()
    if rank == 0:
        show(step, loss.item(), model=model)
    others.append(loss.item())
    optimizer.step()
dist.barrier()
if rank == 1:
    print("rank 1", others, flush=True)
dist.destroy_process_group()
