"""Broadcasting in place: the tensor that is changed keeps its shape.

The other operand may be stretched, the one that is written to may not: its memory is as large as it is.
"""

x = torch.zeros(5, 3, 4, 1)
y = torch.ones(3, 1, 1)
x.add_(y)
print("fits:", tuple(x.shape))

small = torch.zeros(1, 3, 1)
wide = torch.ones(3, 1, 7)
small.add_(wide)
