"""Colours, fonts and the stylesheet of the window, read from `resources/themes`.

`current()` is the theme in force: a value whose attributes are the tokens by name (`current().accentFill`).
`apply(app, choice)` sets one of `CHOICES` for the whole program; `manager().changed` is emitted when it changes.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

from msgspec import Struct
from PySide6.QtCore import QObject, Qt, QTimer, Signal
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontDatabase,
    QFontMetricsF,
    QGuiApplication,
    QPalette,
)
from PySide6.QtWidgets import QApplication

from app.util.leftovers import TemporaryFolder
from app.util.resources import path as resource_path
from app.views.ui import scaling

RESOURCES = resource_path()

THEMES = ("dark", "light", "contrast-dark", "contrast-light")
CHOICES = (*THEMES, "system")

LEAST_SCALE, MOST_SCALE = 1.0, 2.0  # of the text

# Families of `resources/fonts`, which the program brings: what is drawn has the same widths on every machine. A
# character that one lacks is taken from the other, and of the system's only where both lack it.
SANS = "Tapedeck Inter"
MONO = "Tapedeck JetBrains Mono"

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
    "QPushButton": "button",
    "QToolButton": "button",
    "QTabBar": "tab",
    "QHeaderView": "caption",
    "QStatusBar": "caption",
    "QToolTip": "label",
    "QMenu": "label",
    "QMenuBar": "label",
    "QGroupBox": "section",
    "QLineEdit": "label",
    "QComboBox": "label",
    "QComboBoxListView": "label",
    "QAbstractSpinBox": "label",
    "QCheckBox": "label",
    "QRadioButton": "label",
    "QAbstractItemView": "label",
    "QDockWidget": "section",
}

VIRIDIS = (
    "#440154",
    "#482475",
    "#414487",
    "#355F8D",
    "#2A788E",
    "#21918C",
    "#22A884",
    "#44BF70",
    "#7AD151",
    "#BDDF26",
    "#FDE725",
)


class Theme(Struct, frozen=True, eq=False):
    """One set of tokens. The colours are shared: derive a changed one with `mix` or `faded`, never with a setter."""

    name: str
    dark: bool
    contrast: bool  # texts of 7:1 and graphics of 3:1 at least, and lines around what else has only a fill
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

    def outline(self, color: QColor) -> QColor | None:
        """Return the colour for the line around what is told by its fill alone; None but in high contrast."""
        return color if self.contrast else None

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


TOKENS = tuple(name for name, kind in Theme.__annotations__.items() if kind == "QColor")


@cache
def load(name: str) -> Theme:
    """Read `resources/themes/<name>.json`."""
    data: dict[str, Any] = json.loads(
        (RESOURCES / "themes" / f"{name}.json").read_text(encoding="utf-8")
    )
    colors = {
        key: QColor(value)
        for key, value in ({"onFill": "#FFFFFF"} | data["colors"]).items()
    }
    return Theme(
        name=data["name"],
        dark=data["dark"],
        contrast=data.get("contrast", False),
        header=data["header"],
        plot=colors["canvas"] if data["dark"] else colors["raised"],
        categories={key: QColor(value) for key, value in data["categories"].items()},
        series=tuple(QColor(value) for value in data["series"]),
        **colors,
    )


def channels(color: QColor) -> tuple[int, int, int, int]:
    """Return red, green, blue and alpha of a colour, 0 to 255 each."""
    return color.red(), color.green(), color.blue(), color.alpha()


def mix(a: QColor, b: QColor, share: float) -> QColor:
    """Mix two colours: a `share` of 0 returns `a`, 1 returns `b`.

    >>> mix(QColor("#000000"), QColor("#ffffff"), 0.2).name()
    '#333333'
    """
    keep = 1.0 - share
    return QColor(
        *(
            round(x * keep + y * share)
            for x, y in zip(channels(a), channels(b), strict=True)
        )
    )


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
        position = i / 255 * (len(stops) - 1)
        left = min(int(position), len(stops) - 2)
        table.append(channels(mix(stops[left], stops[left + 1], position - left))[:3])
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


@cache
def _register_fonts() -> None:
    """Make the fonts of `resources/fonts` known to the application."""
    for file in sorted((RESOURCES / "fonts").glob("*.ttf")):
        QFontDatabase.addApplicationFont(str(file))


@cache
def _font(role: str, scale: float) -> QFont:
    _register_fonts()
    size, weight, mono = ROLES[role]
    size *= scale
    result = QFont([MONO, SANS] if mono else [SANS, MONO])
    result.setWeight(QFont.Weight(weight))
    if size == int(size):
        result.setPixelSize(int(size))
    else:  # pixel sizes are whole numbers in Qt; a point size says the same with a fraction
        screen = QGuiApplication.primaryScreen()
        result.setPointSizeF(
            size * 72 / (screen.logicalDotsPerInchY() if screen else 96.0)
        )
    if not mono:
        result.setFeature(QFont.Tag("tnum"), 1)
    result.setHintingPreference(QFont.HintingPreference.PreferNoHinting)
    return result


def font_at(role: str, scale: float) -> QFont:
    """Return the font of a role at a text size."""
    return QFont(_font(role, scale))


def font(role: str) -> QFont:
    """Return the font of a role of `ROLES` at the current text size; needs the application.

    Raises:
        KeyError: there is no such role.
    """
    return QFont(_font(role, manager().scale))


def scene_font(role: str) -> QFont:
    """Return the font of a role at text size 1, for graph views, which are zoomed as a whole."""
    return QFont(_font(role, 1.0))


def grown(height: int, role: str = "body") -> int:
    """Return the height of a control in pixels: `height`, or more if the text size needs it."""
    if manager().scale == 1.0:
        return height
    return max(height, round(QFontMetricsF(_font(role, manager().scale)).height()) + 8)


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
    """Holds the current theme. Use the shared instance, `manager()`.

    A change of the text size reaches fonts first, and emits `scaled`; after `changed` controls are fitted to the text.
    """

    changed = Signal()
    styled = Signal()  # after `changed`, once all is laid out again
    scaled = Signal(float)  # before `changed`: by how much the text grew

    def __init__(self) -> None:
        super().__init__()
        self._scale = self._strokes = 1.0
        self._choice = "dark"
        self._theme = load("dark")
        self._app: QApplication | None = None
        self._pictures: TemporaryFolder | None = None
        self._sheets: dict[
            tuple[str, float], str
        ] = {}  # the stylesheet of each theme and text size that was shown
        self._reduced_motion = False

    @property
    def theme(self) -> Theme:
        return self._theme

    @property
    def choice(self) -> str:
        """The chosen theme, one of `CHOICES`."""
        return self._choice

    @property
    def reduced_motion(self) -> bool:
        """Return whether animations are off."""
        return self._reduced_motion

    def set_reduced_motion(self, still: bool) -> None:
        """Turn animations off or on; widgets check this before they animate."""
        self._reduced_motion = still

    @property
    def scale(self) -> float:
        """The text size, 1 to 2 times the design's."""
        return self._scale

    def set_scale(self, scale: float) -> None:
        """Set the text size of all existing and future widgets."""
        before, self._scale = self._scale, min(max(scale, LEAST_SCALE), MOST_SCALE)
        if self._scale != before and self._app is not None:
            self._show(self._theme.name, before)

    @property
    def strokes(self) -> float:
        """The width factor of wires and curves."""
        return self._strokes

    def set_strokes(self, strokes: float) -> None:
        """Set the width factor of wires and curves."""
        before, self._strokes = self._strokes, strokes
        if strokes != before:
            self.changed.emit()

    def apply(self, app: QApplication, choice: str, scale: float | None = None) -> None:
        """Set the theme and optionally the text size. `system` follows the desktop, including later changes.

        Raises:
            ValueError: `choice` is none of `CHOICES`.
        """
        if choice not in CHOICES:
            raise ValueError(f"a theme is one of {', '.join(CHOICES)}, not {choice!r}")
        hints = app.styleHints()
        if self._app is not app:
            self._app = app
            _font.cache_clear()
            _register_fonts.cache_clear()
            hints.colorSchemeChanged.connect(self._follow)
            hints.accessibility().contrastPreferenceChanged.connect(self._follow)
        self._choice = choice
        # Title bars and native dialogs follow the same scheme.
        dark = Qt.ColorScheme.Dark if choice.endswith("dark") else Qt.ColorScheme.Light
        hints.setColorScheme(Qt.ColorScheme.Unknown if choice == "system" else dark)
        before, self._scale = (
            self._scale,
            self._scale if scale is None else min(max(scale, LEAST_SCALE), MOST_SCALE),
        )
        self._show(self._resolved_name(), before)

    def _resolved_name(self) -> str:
        if self._choice != "system" or self._app is None:
            return self._choice
        hints = self._app.styleHints()
        name = "light" if hints.colorScheme() == Qt.ColorScheme.Light else "dark"
        more = (
            hints.accessibility().contrastPreference()
            == Qt.ContrastPreference.HighContrast
        )
        return f"contrast-{name}" if more else name

    def _follow(self) -> None:
        if self._choice == "system" and self._resolved_name() != self._theme.name:
            self._show(self._resolved_name())

    def _show(self, name: str, before: float | None = None) -> None:
        """Apply a theme at the current text size; `before` is the previous text size."""
        app = self._app
        assert app is not None
        self._theme = load(name)
        if self._pictures is None:
            self._pictures = TemporaryFolder()  # removed when the program ends
            app.setStyle("Fusion")
        key = name, self._scale
        if key not in self._sheets:  # each writes its pictures
            self._sheets[key] = stylesheet(
                self._theme, Path(self._pictures.name), self._scale
            )
        colors, sheet = palette(self._theme), self._sheets[key]
        # Unchanged: setting it would restyle every widget.
        if app.styleSheet() == sheet and app.palette() == colors:
            self._set_fonts(app)
            return
        app.setPalette(colors)
        app.setStyleSheet("")  # else each widget is polished once for each ancestor
        app.setStyleSheet(sheet)
        self._set_fonts(app)
        grows = self._scale / (before or self._scale)
        if grows != 1.0:
            roles = {font_at(role, self._scale / grows).key(): role for role in ROLES}
            fonts = {key: font(role) for key, role in roles.items()}
            scaling.scale_fonts(app.allWidgets(), fonts, grows)
            self.scaled.emit(grows)
        self.changed.emit()
        if grows != 1.0:
            scaling.fit_all(self._scale)
        QTimer.singleShot(0, self, self.styled.emit)

    @staticmethod
    def _set_fonts(app: QApplication) -> None:
        """Set the application's fonts; call it after the stylesheet, which resets them."""
        # The stubs want bytes, which PySide itself refuses: a class name is a str.
        if app.font() != font("body"):
            app.setFont(font("body"))
        for class_name, role in CLASS_FONTS.items():
            class_font = font(role)
            if app.font(class_name) != class_font:  # type: ignore[call-overload]
                app.setFont(class_font, class_name)  # type: ignore[arg-type]


@cache
def manager() -> ThemeManager:
    """Return the program's theme manager."""
    return ThemeManager()


def current() -> Theme:
    """Return the current theme; dark until `apply` was called."""
    return manager().theme


def apply(app: QApplication, choice: str, scale: float | None = None) -> None:
    """Set the theme of the program, one of `CHOICES`, and its text size if one is given."""
    manager().apply(app, choice, scale)


def palette(theme: Theme) -> QPalette:
    """Return the tokens as the palette that the Fusion style reads."""
    role = QPalette.ColorRole
    result = QPalette()
    for color_role, color in {
        role.Window: theme.panel,
        role.WindowText: theme.text,
        role.Base: theme.sunken,
        role.AlternateBase: theme.frame,
        role.Text: theme.text,
        role.Button: theme.raised,
        role.ButtonText: theme.text,
        role.BrightText: theme.error,
        role.ToolTipBase: theme.raised,
        role.ToolTipText: theme.text,
        role.PlaceholderText: theme.text3,
        role.Highlight: theme.accentFill,
        role.HighlightedText: theme.onFill,
        role.Accent: theme.accentFill,
        role.Link: theme.accent,
        role.LinkVisited: theme.accent,
        role.Light: theme.line3,
        role.Midlight: theme.line2,
        role.Mid: theme.line2,
        role.Dark: theme.line,
        role.Shadow: theme.window,
    }.items():
        result.setColor(color_role, color)
    for color_role in (
        role.WindowText,
        role.Text,
        role.ButtonText,
        role.PlaceholderText,
        role.ToolTipText,
    ):
        result.setColor(QPalette.ColorGroup.Disabled, color_role, theme.text4)
    result.setColor(QPalette.ColorGroup.Disabled, role.Highlight, theme.pressed)
    return result


# name in the stylesheet: icon, token
_PICTURE = re.compile(r"\$(up|down|right|check|close|remove)_(\w+)")
_PICTURE_ICONS = {"up": "chevron-up", "down": "chevron-down", "right": "chevron-right"}


_SIZED, _LEAST = (
    re.compile(r"font-size: (\d+)px"),
    re.compile(r"min-height: (1[89]|2\d)px"),
)  # of what has text


def stylesheet(theme: Theme, pictures: Path, scale: float = 1.0) -> str:
    """Return the stylesheet in a theme's colours, for a text size.

    A stylesheet can refer to pictures only by file, so the few that it needs are written to `pictures` as SVG, which Qt
    draws sharp at every scale.
    """
    text = (RESOURCES / "themes" / "tapedeck.qss").read_text(encoding="utf-8")
    if theme.contrast:
        text += (RESOURCES / "themes" / "contrast.qss").read_text(encoding="utf-8")
    if scale != 1.0:
        line = round(15 * scale)  # high, of a control's text
        text = _SIZED.sub(
            lambda match: f"font-size: {round(int(match[1]) * scale)}px", text
        )
        text = _LEAST.sub(
            lambda match: f"min-height: {max(int(match[1]), line)}px", text
        )
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
