"""Loading torch's native libraries without holding the other threads."""

from __future__ import annotations

import ctypes
import os
import sys
from importlib.util import find_spec
from pathlib import Path


def preload() -> tuple[str, ...]:
    """Preload the libraries of `import torch`; return the names of those that could be loaded.

    Python holds the GIL while it loads an extension, and torch's takes 0.2 to 0.3 s, which blocks the window. The same
    `dlopen`, called through ctypes, releases the GIL. Only on Linux, where this was measured; failures are left to
    torch to report.
    """
    torch = find_spec("torch") if sys.platform == "linux" and "torch" not in sys.modules else None
    if torch is None or not torch.submodule_search_locations:
        return ()
    folder = Path(torch.submodule_search_locations[0]) / "lib"
    # As torch does it: global dependencies of CUDA and MKL come first, with global visibility.
    wanted = (("libtorch_global_deps.so", os.RTLD_GLOBAL), ("libtorch_python.so", os.RTLD_LOCAL))
    dlopen = ctypes.CDLL(None).dlopen
    dlopen.argtypes, dlopen.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    return tuple(name for name, mode in wanted if dlopen(os.fsencode(folder / name), os.RTLD_NOW | mode))
