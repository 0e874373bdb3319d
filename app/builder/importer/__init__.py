"""A live `nn.Module` becomes a drawing: traced, its classes made blocks, equal ones one block."""
