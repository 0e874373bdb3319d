"""Broadcasting: incompatible shapes.

The third dimension from the right is 2 in one tensor and 3 in the other, and neither is 1. The error counts from the
left: dimension 1.
"""

x = torch.zeros(5, 2, 4, 1)
y = torch.zeros(3, 1, 1)
x + y
