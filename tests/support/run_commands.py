"""A command that trains, and what it prints."""

from __future__ import annotations

import json

from app.util.resources import path as resource_path
from tests.support.taken_device import DEVICE

DIGITS = resource_path("examples", "digits.tape")
TRAIN = ["train", str(DIGITS), "--epochs", "2", "--device", DEVICE]


def steps(text: str) -> list[tuple[int, float]]:
    events = [json.loads(line) for line in text.splitlines()]
    return [
        (event["step"], event["loss"]) for event in events if event["event"] == "step"
    ]
