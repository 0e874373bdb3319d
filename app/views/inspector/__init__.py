"""The Inspector: everything that can be set of the selected node."""

from app.views.inspector.inspector import Inspector

__all__ = ["Inspector"]
