"""Which samples are held out. The exported `train.py` carries `stratified_split` word for word.

torch is imported at the top because the text stands alone in that script: import this module lazily.
"""

import torch
from torch import Tensor


def stratified_split(labels: Tensor, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Indices (training, validation): of every class, `fraction` is held out, chosen by `seed`.

    `labels` holds class ids, shape (N,). Both answers are in ascending order.
    """
    generator = torch.Generator().manual_seed(seed)
    training, validation = [], []
    for label in labels.unique():
        members = (labels == label).nonzero().flatten()
        members = members[torch.randperm(len(members), generator=generator)]
        held_out = round(len(members) * fraction)
        validation.append(members[:held_out])
        training.append(members[held_out:])
    return torch.cat(training).sort().values, torch.cat(validation).sort().values
