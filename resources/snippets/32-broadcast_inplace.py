"""Broadcasting in-place: the modified tensor keeps its shape.

The other operand may be expanded, the modified one may not: its storage has a fixed size.
"""

x = torch.zeros(5, 3, 4, 1)
y = torch.ones(3, 1, 1)
x.add_(y)
print("fits:", tuple(x.shape))

small = torch.zeros(1, 3, 1)
wide = torch.ones(3, 1, 7)
small.add_(wide)
