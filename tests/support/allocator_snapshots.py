"""Snapshots of torch's allocator as its documentation describes them; no test has one of a real device."""

from __future__ import annotations

from typing import Any

TORCH = "/env/lib/python3.11/site-packages/torch"
CPP = {"filename": "??", "line": 0, "name": "torch::unwind::unwind()"}


def frames(line: int, function: str = "forward") -> list[dict[str, Any]]:
    """Innermost first: C++, torch's Python, the user's."""
    return [
        CPP,
        {
            "filename": f"{TORCH}/nn/modules/linear.py",
            "line": 134,
            "name": "forward",
        },
        {"filename": "/home/me/net.py", "line": line, "name": function},
        {"filename": "/home/me/train.py", "line": 7, "name": "<module>"},
    ]


def block(
    address: int, size: int, of: list[dict[str, Any]], state: str = "active_allocated"
) -> dict[str, Any]:
    return {
        "address": address,
        "size": size,
        "requested_size": size - 12,
        "state": state,
        "frames": of,
    }


def event(
    action: str, address: int, size: int, of: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "action": action,
        "addr": address,
        "size": size,
        "stream": 0,
        "time_us": 1_700_000_000_000_000,
        "frames": of,
    }


def snapshot() -> dict[str, Any]:
    """Weights from before the recording; two activations, of which one is freed; a batch that did not fit."""
    first, second, loader = frames(10), frames(11), frames(30, "load")
    return {
        "segments": [
            {
                "device": 0,
                "address": 4096,
                "total_size": 4096,
                "allocated_size": 1536,
                "active_size": 1536,
                "stream": 0,
                "segment_type": "small",
                "segment_pool_id": (0, 0),
                "is_expandable": False,
                "blocks": [
                    block(4096, 1024, []),
                    block(5120, 512, first),
                    block(5632, 2560, [], "inactive"),
                ],
            }
        ],
        "device_traces": [
            [
                event("alloc", 5120, 512, first),
                event("alloc", 5632, 2048, second),
                event("free_requested", 5632, 2048, second),
                event("free_completed", 5632, 2048, second),
                {
                    "action": "oom",
                    "size": 1 << 33,
                    "device_free": 1 << 30,
                    "frames": loader,
                },
            ]
        ],
        "allocator_settings": {"expandable_segments": False, "roundup": {"1": 0.5}},
        "external_annotations": [],
    }
