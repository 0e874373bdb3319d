"""Settings of Sphinx for the manual, which `make docs` builds."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
while not (ROOT / "pyproject.toml").exists():  # the pages are built from a copy
    ROOT = ROOT.parent
sys.path.insert(0, str(ROOT))

from app import __version__  # noqa: E402

project = "Tapedeck"
author = "Tapedeck contributors"
project_copyright = author
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["fragments"]
nitpicky = False
myst_heading_anchors = 3
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
html_theme = "furo"
html_title = f"Tapedeck {release}"
html_copy_source = False
html_show_sphinx = False
html_favicon = "icon.svg"
