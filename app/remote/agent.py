"""torchrun as a process that ends when the program that started it does: `python -m app.remote.agent ARGUMENTS`."""

from __future__ import annotations

import signal
import sys

from app.remote.process import die_with_parent


def main() -> None:
    # Told to end, torchrun ends its processes; killed, it would leave them.
    die_with_parent(signal.SIGTERM)
    from torch.distributed import run

    run.main(sys.argv[1:])


if __name__ == "__main__":
    main()
