"""A frozen resnet18 with a new head.

Every parameter is frozen, then the last layer is replaced: new layers require a gradient. The whole network runs, yet
the graph contains only the new head. (The weights are random: nothing is downloaded.)
"""

from torchvision.models import resnet18

model = resnet18(weights=None)
for parameter in model.parameters():
    parameter.requires_grad = False
model.fc = nn.Linear(model.fc.in_features, 100)

images, labels = torch.randn(2, 3, 64, 64), torch.tensor([3, 7])
loss = F.cross_entropy(model(images), labels)
loss.backward()

learning = [
    name for name, parameter in model.named_parameters() if parameter.requires_grad
]
print("these learn:", learning)
print("conv1.weight.grad:", model.conv1.weight.grad)
print("fc.weight.grad:", tuple(model.fc.weight.grad.shape))
