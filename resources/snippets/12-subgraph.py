"""A frozen part is not in the graph.

The encoder's weight does not require a gradient, so nothing of the encoder is in the graph: no node, no saved tensor.
Backward ends at the head, and only the head has a .grad afterwards.
"""

encoder = torch.randn(8, 4)
head = torch.randn(4, 1, requires_grad=True)
data = torch.randn(16, 8)

features = torch.relu(data @ encoder)
loss = (features @ head).pow(2).mean()
loss.backward()
print("features:", features.requires_grad)
print("encoder.grad:", encoder.grad)
print("head.grad:", tuple(head.grad.shape))
