"""Colours, fonts and the stylesheet of the window, read from `resources/themes`.

`current()` is the theme in force: a value whose attributes are the tokens by name (`current().accentFill`).
`apply(app, "dark" | "light" | "system")` sets it for the whole program; `manager().changed` is emitted when it changes.
"""

from __future__ import annotations

import json
import re
from dataclasses import fields
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QGuiApplication, QPalette
from PySide6.QtWidgets import QApplication

from app.util.late_dataclass import dataclass
from app.util.leftovers import TemporaryFolder
from app.util.resources import path as resource_path

RESOURCES = resource_path()

SANS = ("Inter", "DejaVu Sans")
MONO = ("JetBrains Mono", "DejaVu Sans Mono")

# role: (pixels, weight, mono)
ROLES: dict[str, tuple[float, int, bool]] = {
    "project": (15, 600, False),
    "title": (14, 600, False),
    "body": (13, 400, False),
    "node": (12.5, 600, False),
    "message": (12.5, 500, False),
    "tab": (12, 500, False),
    "button": (12, 500, False),
    "section": (12, 600, False),
    "label": (12, 400, False),
    "caption": (11, 400, False),
    "shape": (10.5, 500, False),
    "axis": (10.5, 400, False),
    "counter": (14, 500, True),
    "code": (12, 400, True),
    "formula": (11, 400, True),
}

# Classes with another font size than the body's; in a stylesheet the font would override `setFont`.
CLASS_FONTS = {
    "QPushButton": "button", "QToolButton": "button", "QTabBar": "tab", "QHeaderView": "caption",
    "QStatusBar": "caption", "QToolTip": "label", "QMenu": "label", "QMenuBar": "label", "QGroupBox": "section",
    "QLineEdit": "label", "QComboBox": "label", "QComboBoxListView": "label", "QAbstractSpinBox": "label",
    "QCheckBox": "label", "QRadioButton": "label", "QAbstractItemView": "label", "QDockWidget": "section",
}  # fmt: skip

VIRIDIS = (
    "#440154", "#482475", "#414487", "#355F8D", "#2A788E", "#21918C", "#22A884", "#44BF70", "#7AD151",
    "#BDDF26", "#FDE725",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Theme:
    """One set of tokens. The colours are shared: derive a changed one with `mix` or `faded`, never with a setter."""

    name: str
    dark: bool
    header: float  # share of the category in a node's header
    window: QColor
    canvas: QColor
    dot: QColor
    frame: QColor
    panel: QColor
    raised: QColor
    hover: QColor
    pressed: QColor
    sunken: QColor
    line: QColor
    line2: QColor
    line3: QColor
    text: QColor
    text2: QColor
    text3: QColor
    text4: QColor
    accent: QColor
    accentFill: QColor
    accentBg: QColor
    back: QColor
    backBg: QColor
    run: QColor
    runBg: QColor
    warn: QColor
    warnBg: QColor
    error: QColor
    errorBg: QColor
    errorFill: QColor
    wire: QColor
    wireTrain: QColor
    wireIdle: QColor
    onFill: QColor  # text on accentFill and errorFill
    plot: QColor  # background of charts
    categories: dict[str, QColor]
    series: tuple[QColor, ...]

    def color(self, name: str | QColor) -> QColor:
        """Return the colour of a token, a category or `#rrggbb`; a `QColor` is returned as it is.

        Raises:
            KeyError: there is no such token.
        """
        if isinstance(name, QColor):
            return name
        if name.startswith("#"):
            return QColor(name)
        if name in self.categories:
            return self.categories[name]
        if name in TOKENS:
            return getattr(self, name)
        raise KeyError(f"no colour is called {name!r}")


TOKENS = tuple(f.name for f in fields(Theme) if f.type == "QColor")


@cache
def load(name: str) -> Theme:
    """Read `resources/themes/<name>.json`."""
    data: dict[str, Any] = json.loads((RESOURCES / "themes" / f"{name}.json").read_text(encoding="utf-8"))
    colors = {key: QColor(value) for key, value in data["colors"].items()}
    return Theme(
        name=data["name"],
        dark=data["dark"],
        header=data["header"],
        onFill=QColor("#FFFFFF"),
        plot=colors["canvas"] if data["dark"] else colors["raised"],
        categories={key: QColor(value) for key, value in data["categories"].items()},
        series=tuple(QColor(value) for value in data["series"]),
        **colors,
    )


def channels(color: QColor) -> tuple[int, int, int, int]:
    """Return red, green, blue and alpha of a colour, 0 to 255 each."""
    return color.red(), color.green(), color.blue(), color.alpha()


def mix(a: QColor, b: QColor, share: float) -> QColor:
    """`a` with `share` of `b` in it: 0 gives `a`, 1 gives `b`.

    >>> mix(QColor("#000000"), QColor("#ffffff"), 0.2).name()
    '#333333'
    """
    keep = 1.0 - share
    return QColor(*(round(x * keep + y * share) for x, y in zip(channels(a), channels(b), strict=True)))


def faded(color: QColor, share: float) -> QColor:
    """Return `color` at an opacity of `share`, as a new colour."""
    result = QColor(color)
    result.setAlphaF(share)
    return result


@cache
def heat_table() -> tuple[tuple[int, int, int], ...]:
    """Return the heat ramp, viridis, as 256 (red, green, blue) entries."""
    stops = [QColor(c) for c in VIRIDIS]
    table = []
    for i in range(256):
        place = i / 255 * (len(stops) - 1)
        left = min(int(place), len(stops) - 2)
        table.append(channels(mix(stops[left], stops[left + 1], place - left))[:3])
    return tuple(table)


def heat(t: float) -> QColor:
    """Return the ramp's colour at `t`, clamped to 0 to 1."""
    return QColor(*heat_table()[round(min(max(t, 0.0), 1.0) * 255)])


def category_color(key: str) -> QColor:
    """Return a category's colour in the current theme."""
    return current().categories[key]


def header_fill(key: str) -> QColor:
    """Return the fill of a node's header."""
    return mix(current().raised, category_color(key), current().header)


def pill_fill(key: str) -> QColor:
    """Return the fill of a count pill on a node's header."""
    return mix(current().raised, category_color(key), 0.28)


def tile_fill(key: str) -> QColor:
    """Return the fill of the icon tile in the inspector."""
    return mix(current().panel, category_color(key), 0.20)


def _family(wished: tuple[str, ...], system: QFontDatabase.SystemFont) -> str:
    for family in wished:
        if QFontDatabase.hasFamily(family):
            return family
    return QFontDatabase.systemFont(system).family()


@cache
def _font(role: str) -> QFont:
    size, weight, mono = ROLES[role]
    kind = QFontDatabase.SystemFont.FixedFont if mono else QFontDatabase.SystemFont.GeneralFont
    result = QFont(_family(MONO if mono else SANS, kind))
    result.setWeight(QFont.Weight(weight))
    if size == int(size):
        result.setPixelSize(int(size))
    else:  # pixel sizes are whole numbers in Qt; a point size says the same with a fraction
        screen = QGuiApplication.primaryScreen()
        result.setPointSizeF(size * 72 / (screen.logicalDotsPerInchY() if screen else 96.0))
    if not mono:
        result.setFeature(QFont.Tag("tnum"), 1)
    result.setHintingPreference(QFont.HintingPreference.PreferNoHinting)
    return result


def font(role: str) -> QFont:
    """Return the font of a role of `ROLES`; needs the application.

    Raises:
        KeyError: there is no such role.
    """
    return QFont(_font(role))


def svg(name: str, color: QColor) -> bytes:
    """Return `resources/icons/<name>.svg` in one colour, as bytes.

    Raises:
        FileNotFoundError: there is no such icon.
    """
    return _svg_text(name).replace("currentColor", color.name()).encode()


@cache
def _svg_text(name: str) -> str:
    return (RESOURCES / "icons" / f"{name}.svg").read_text(encoding="utf-8")


class ThemeManager(QObject):
    """Holds the current theme. Use the shared instance, `manager()`."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._choice = "dark"
        self._theme = load("dark")
        self._app: QApplication | None = None
        self._pictures: TemporaryFolder | None = None
        self._sheets: dict[str, str] = {}  # the stylesheet of each theme that was shown
        self._reduced_motion = False

    @property
    def theme(self) -> Theme:
        return self._theme

    @property
    def choice(self) -> str:
        """The chosen theme: dark, light or system."""
        return self._choice

    @property
    def reduced_motion(self) -> bool:
        """Return whether animations are off."""
        return self._reduced_motion

    def set_reduced_motion(self, still: bool) -> None:
        """Turn animations off or on; widgets check this before they animate."""
        self._reduced_motion = still

    def apply(self, app: QApplication, choice: str) -> None:
        """Set the theme of the program. `system` follows the desktop, also when it changes.

        Raises:
            ValueError: `choice` is none of dark, light, system.
        """
        if choice not in ("dark", "light", "system"):
            raise ValueError(f"a theme is dark, light or system, not {choice!r}")
        hints = app.styleHints()
        if self._app is not app:
            self._app = app
            _font.cache_clear()
            hints.colorSchemeChanged.connect(self._follow)
        self._choice = choice
        # Title bars and native dialogs follow the same scheme.
        schemes = {"dark": Qt.ColorScheme.Dark, "light": Qt.ColorScheme.Light, "system": Qt.ColorScheme.Unknown}
        hints.setColorScheme(schemes[choice])
        self._show(self._resolved_name())

    def _resolved_name(self) -> str:
        if self._choice != "system" or self._app is None:
            return self._choice
        return "light" if self._app.styleHints().colorScheme() == Qt.ColorScheme.Light else "dark"

    def _follow(self) -> None:
        if self._choice == "system" and self._resolved_name() != self._theme.name:
            self._show(self._resolved_name())

    def _show(self, name: str) -> None:
        app = self._app
        assert app is not None
        self._theme = load(name)
        if app.style().objectName().lower() != "fusion":
            app.setStyle("Fusion")
        if self._pictures is None:
            self._pictures = TemporaryFolder()  # removed when the program ends
        if name not in self._sheets:  # each writes its pictures
            self._sheets[name] = stylesheet(self._theme, Path(self._pictures.name))
        colors, sheet = palette(self._theme), self._sheets[name]
        if app.styleSheet() == sheet and app.palette() == colors:  # shown already: every widget would be styled again
            self._set_fonts(app)
            return
        app.setPalette(colors)
        app.setStyleSheet(sheet)
        self._set_fonts(app)
        self.changed.emit()

    @staticmethod
    def _set_fonts(app: QApplication) -> None:
        """Set the fonts, which are the same in all themes; after the stylesheet, the first of which resets them."""
        # The stubs want bytes, which PySide itself refuses: a class name is a str.
        of_fields = app.font("QLineEdit")  # type: ignore[call-overload]
        if app.font() == font("body") and of_fields == font("label"):
            return
        app.setFont(font("body"))
        for class_name, role in CLASS_FONTS.items():
            app.setFont(font(role), class_name)  # type: ignore[arg-type]


@cache
def manager() -> ThemeManager:
    """Return the program's theme manager."""
    return ThemeManager()


def current() -> Theme:
    """Return the current theme; dark until `apply` was called."""
    return manager().theme


def apply(app: QApplication, choice: str) -> None:
    """Set the theme of the program: dark, light or system."""
    manager().apply(app, choice)


def palette(theme: Theme) -> QPalette:
    """Return the tokens as the palette that the Fusion style reads."""
    role = QPalette.ColorRole
    result = QPalette()
    for place, color in {
        role.Window: theme.panel, role.WindowText: theme.text, role.Base: theme.sunken, role.AlternateBase: theme.frame,
        role.Text: theme.text, role.Button: theme.raised, role.ButtonText: theme.text, role.BrightText: theme.error,
        role.ToolTipBase: theme.raised, role.ToolTipText: theme.text, role.PlaceholderText: theme.text3,
        role.Highlight: theme.accentFill, role.HighlightedText: theme.onFill, role.Accent: theme.accentFill,
        role.Link: theme.accent, role.LinkVisited: theme.accent, role.Light: theme.line3, role.Midlight: theme.line2,
        role.Mid: theme.line2, role.Dark: theme.line, role.Shadow: theme.window,
    }.items():  # fmt: skip
        result.setColor(place, color)
    for place in (role.WindowText, role.Text, role.ButtonText, role.PlaceholderText, role.ToolTipText):
        result.setColor(QPalette.ColorGroup.Disabled, place, theme.text4)
    result.setColor(QPalette.ColorGroup.Disabled, role.Highlight, theme.pressed)
    return result


# name in the stylesheet: icon, token
_PICTURE = re.compile(r"\$(up|down|right|check|close|remove)_(\w+)")
_PICTURE_ICONS = {"up": "chevron-up", "down": "chevron-down", "right": "chevron-right"}


def stylesheet(theme: Theme, pictures: Path) -> str:
    """Return the stylesheet in a theme's colours.

    A stylesheet can refer to pictures only by file, so the few that it needs are written to `pictures` as SVG, which Qt
    draws sharp at every scale.
    """
    text = (RESOURCES / "themes" / "tapedeck.qss").read_text(encoding="utf-8")
    values = {token: getattr(theme, token).name() for token in TOKENS}
    values |= {
        "accentLine": mix(theme.raised, theme.accent, 0.45).name(),
        "accentFillHover": mix(theme.accentFill, theme.onFill, 0.10).name(),
        "accentFillPressed": mix(theme.accentFill, QColor("#000000"), 0.14).name(),
        "hoverWindow": mix(theme.window, theme.hover, 0.5).name(),
    }
    for shape, token in set(_PICTURE.findall(text)):
        file = pictures / f"{theme.name}-{shape}-{token}.svg"
        file.write_bytes(svg(_PICTURE_ICONS.get(shape, shape), theme.color(token)))
        values[f"{shape}_{token}"] = f'url("{file.as_posix()}")'
    return Template(text).substitute(values)
