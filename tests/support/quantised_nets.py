"""Models with quantised parts."""

TEXT = """
import torch
from torch import nn
from torch.ao.quantization import DeQuantStub, QuantStub, convert, get_default_qconfig, prepare, quantize_dynamic


def linear():
    return nn.Sequential(quantize_dynamic(nn.Sequential(nn.Linear(4, 4)).eval(), {nn.Linear}), nn.Linear(4, 2))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = quantize_dynamic(nn.Sequential(nn.LSTM(4, 4)).eval(), {nn.LSTM})[0], nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.rnn(x[None])[0][0])


def recurrent():
    return Recurrent()


def static():
    body = nn.Sequential(QuantStub(), nn.Linear(4, 4), DeQuantStub()).eval()
    body.qconfig = get_default_qconfig(torch.backends.quantized.engine)
    prepare(body, inplace=True)
    body(torch.randn(8, 4))
    return nn.Sequential(convert(body), nn.Linear(4, 2))
"""
