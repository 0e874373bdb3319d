"""The Inspector: what is selected, and everything of it that can be set."""

from app.views.inspector.inspector import Inspector

__all__ = ["Inspector"]
