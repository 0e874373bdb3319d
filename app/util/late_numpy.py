"""`np`, imported when it is first used: the window can be used before anything of it computes with arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
else:

    class _Late:
        def __getattr__(self, name: str) -> Any:
            import numpy

            value = getattr(numpy, name)
            setattr(self, name, value)  # found without this method from now on
            return value

    np = _Late()

__all__ = ["np"]
