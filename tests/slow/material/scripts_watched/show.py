"""What every script prints: at each step its loss, and by parameter the `.grad.norm()` of its models."""

import json

import torch

torch.set_num_threads(1)


def show(step, loss, **models):
    norms = {}
    for model_name, model in models.items():
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                dense = (
                    parameter.grad.to_dense()
                    if parameter.grad.is_sparse
                    else parameter.grad
                )
                own = name.replace("_orig_mod.", "").removeprefix("module.")
                norms[f"{model_name}.{own}"] = dense.norm().item()
    print(json.dumps({"step": step, "loss": loss, "norms": norms}), flush=True)
