"""How the program looks: theme, text size, thickness of wires, motion, and the preset for a projector."""

from __future__ import annotations

import json
from typing import Any

from PySide6.QtCore import QObject
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QApplication, QMenu

from app.views.actions import Actions
from app.views.settings import Settings
from app.views.shell.preferences import SIZES, THEMES
from app.views.ui import theme

THICK = 1.75  # times the designed thickness
PROJECTOR: dict[str, Any] = {
    "theme": "contrast-light",
    "font_scale": 1.5,
    "thick_wires": True,
    "reduced_motion": True,
}


def apply(application: QApplication, settings: Settings) -> None:
    """Put the stored look on the program."""
    manager = theme.manager()
    manager.set_reduced_motion(settings.reduced_motion)
    manager.set_strokes(THICK if settings.thick_wires else 1.0)
    if (manager.choice, manager.scale) != (
        settings.theme,
        settings.font_scale,
    ) or not application.styleSheet():
        theme.apply(application, settings.theme, settings.font_scale)


class Appearance(QObject):
    """The commands of the View menu that change the look; each is stored and applied at once."""

    def __init__(self, settings: Settings, parent: QObject) -> None:
        super().__init__(parent)
        self._settings = settings
        self._several = False  # settings are changed, and applied together
        settings.changed.connect(self._changed)
        self._themes: dict[str, QAction] = {}
        self._sizes: dict[str, QAction] = {}
        terms = "settings preferences appearance accessibility"
        self.motion = self._switch(
            "Reduce mot&ion", f"{terms} animation", self.set_reduced_motion
        )
        self.thick = self._switch(
            "Thic&ker wires", f"{terms} width lines curves", self.set_thick_wires
        )
        self.projector = self._switch(
            "Pro&jector",
            f"{terms} classroom teacher presentation beamer",
            self.set_projector,
        )
        self.projector.setToolTip(
            "Large text, high contrast, thick wires and no motion; turning it off restores the previous settings"
        )
        self._show()

    def _switch(self, text: str, terms: str, slot: Any) -> QAction:
        action = QAction(text, self, checkable=True)
        action.setData(terms)
        action.triggered.connect(slot)
        return action

    def offer_themes(self, actions: Actions, menu: QMenu) -> None:
        """Fill the menu of themes."""
        self._themes = actions.choices(
            menu,
            "theme",
            THEMES,
            self.set_theme,
            "Theme",
            "settings preferences appearance",
        )
        self._show()

    def offer_sizes(self, actions: Actions, menu: QMenu) -> None:
        """Fill the menu of text sizes."""
        options = tuple((str(size), text) for size, text in SIZES)
        terms = "settings preferences appearance accessibility font scale zoom larger"
        self._sizes = actions.choices(
            menu,
            "text-size",
            options,
            lambda text: self.set_scale(float(text)),
            "Text size",
            terms,
        )
        self._show()

    def _show(self) -> None:
        """Check what is in force."""
        settings = self._settings
        for key, action in self._themes.items():
            action.setChecked(key == settings.theme)
        for key, action in self._sizes.items():
            action.setChecked(float(key) == settings.font_scale)
        self.motion.setChecked(settings.reduced_motion)
        self.thick.setChecked(settings.thick_wires)
        self.projector.setChecked(settings.projector)

    def set_theme(self, choice: str) -> None:
        """Put on a theme, and remember it."""
        self._set(theme=choice)

    def set_scale(self, scale: float) -> None:
        """Set the text size, and remember it."""
        self._set(font_scale=scale)

    def set_thick_wires(self, on: bool) -> None:
        """Draw wires and curves thicker or as designed, and remember it."""
        self._set(thick_wires=on)

    def set_reduced_motion(self, still: bool) -> None:
        """Turn animations off or on, and remember it."""
        self._set(reduced_motion=still)

    def set_projector(self, on: bool) -> None:
        """Put on the look for a projector, or go back to the one before it."""
        settings = self._settings
        settings.projector = on
        if on and not settings.before_projector:
            settings.before_projector = json.dumps(
                {name: getattr(settings, name) for name in PROJECTOR}
            )
            self._set(**PROJECTOR)
        elif not on and settings.before_projector:
            before, settings.before_projector = settings.before_projector, ""
            self._set(**_read_settings(before))

    def _set(self, **looks: Any) -> None:
        self._several = True
        for name, value in looks.items():
            setattr(self._settings, name, value)
        self._several = False
        self.take_settings()

    def _changed(self, name: str) -> None:
        if name == "projector":
            self.set_projector(self._settings.projector)
        elif name in PROJECTOR and not self._several:
            self.take_settings()

    def take_settings(self) -> None:
        """Put the stored look on the program and check what is in force."""
        application = QApplication.instance()
        assert isinstance(application, QApplication)
        apply(application, self._settings)
        self._show()


def _read_settings(text: str) -> dict[str, Any]:
    """Read a stored look; what is unreadable or out of range is left as it is now."""
    try:
        read = json.loads(text)
    except ValueError:
        return {}
    kinds = {
        "theme": str,
        "font_scale": float,
        "thick_wires": bool,
        "reduced_motion": bool,
    }
    look = {
        name: read[name]
        for name, kind in kinds.items()
        if isinstance(read, dict) and isinstance(read.get(name), kind)
    }
    if look.get("theme", "dark") not in theme.CHOICES:
        del look["theme"]
    if not theme.LEAST_SCALE <= look.get("font_scale", 1.0) <= theme.MOST_SCALE:
        del look["font_scale"]
    return look
