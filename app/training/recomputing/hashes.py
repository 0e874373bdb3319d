"""Hash gradients and the states of random generators."""

from typing import Any

import torch
from torch import Tensor, nn

from app.telemetry.gradients import LayerParameters


def bits_of(tensor: Tensor) -> Tensor:
    """Return the bits of a tensor's values in logical order, as integers, shape (n,), as wide as they divide."""
    flat = tensor.detach()
    flat = torch.view_as_real(flat.resolve_conj()) if flat.is_complex() else flat
    flat = flat.resolve_neg().reshape(-1)
    size = flat.element_size()
    if flat.numel() * size % 8 == 0:
        if flat.storage_offset() * size % 8:  # a piece of a larger tensor
            flat = flat.clone()
        return flat.view(torch.int64)
    return flat.view(
        {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    )


def hash_of(tensor: Tensor) -> Tensor:
    """Return the hash of a tensor, a scalar int64 on its device: the XOR of its bits (`torch.hash_tensor`).

    Values that change places within the tensor are not noticed, nor is an even number of equal changes.
    """
    if tensor.layout == torch.sparse_coo:
        tensor = tensor.coalesce()
        return hash_of(tensor.values()) * 3 + hash_of(tensor.indices())
    bits = bits_of(tensor)
    return (
        torch.hash_tensor(bits).view(torch.int64)
        if len(bits)
        else bits.new_zeros((), dtype=torch.int64)
    )


def odd_numbers(count: int) -> Tensor:
    """Return odd position-dependent factors, int64 (count,): multiples of 2**64 divided by the golden ratio."""
    return (torch.arange(count) * 2 + 1) * -7046029254386353131


class GradientHasher(LayerParameters):
    """Hashes the gradients of a module's trainable parameters, by layer.

    It draws no random numbers and does not wait for the device.
    """

    def __init__(self, model: nn.Module, device: Any) -> None:
        super().__init__(model)
        self.device = torch.device(device)
        self.factors = odd_numbers(len(self.parameters)).to(self.device)
        self.indices = torch.tensor(self.places, dtype=torch.int64).to(self.device)
        self.missing = torch.ones(
            (), dtype=torch.int64, device=self.device
        )  # where a parameter has no gradient
        self.state_factors = odd_numbers(torch.get_rng_state().numel() // 8)

    def warm_up(self) -> None:
        """Call each operation once, on a few numbers: the first call takes milliseconds."""
        self.generator()
        few = torch.stack([hash_of(torch.ones(2, device=self.device))] * 2)
        self.missing.new_zeros(2).index_add_(
            0, torch.arange(2, device=self.device), few * few
        )

    def gradients(self) -> Tensor:
        """Return a hash for each layer, int64 (layers,): that of its parameters' gradients, in their order."""
        parameter_hashes = [
            self.missing
            if parameter.grad is None
            else hash_of(parameter.grad).to(self.device)
            for parameter in self.parameters
        ]
        hashes = self.missing.new_zeros(len(self.layers))
        return (
            hashes.index_add_(
                0, self.indices, torch.stack(parameter_hashes) * self.factors
            )
            if parameter_hashes
            else hashes
        )

    def generator(self) -> Tensor:
        """Return the hash of the states of torch's generators for the CPU and the device, a scalar int64."""
        state_hash = torch.dot(
            torch.get_rng_state().view(torch.int64), self.state_factors
        )
        if self.device.type != "cpu":
            module = torch.get_device_module(self.device)
            state_hash = state_hash * 3 + hash_of(module.get_rng_state(self.device))
        return state_hash
