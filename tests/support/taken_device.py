"""The device of the runs that tests make: `TAPEDECK_TEST_DEVICE`, else the CPU."""

from __future__ import annotations

import os

DEVICE = os.environ.get("TAPEDECK_TEST_DEVICE", "cpu")
