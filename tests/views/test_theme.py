"""Tokens, fonts, the stylesheet and icons."""

import re
import shutil

import numpy as np
import pytest
from PySide6.QtCore import QSize, QTimer
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontInfo,
    QFontMetricsF,
    QIcon,
    QImage,
    QPaintEvent,
    QRawFont,
)
from PySide6.QtWidgets import QApplication, QPushButton

from app.util import resources
from app.views.ui import icons, theme
from app.views.ui.tables import FiguresTable

MODES = theme.THEMES
CATEGORIES = {
    "io",
    "conv",
    "linear",
    "act",
    "norm",
    "shape",
    "drop",
    "merge",
    "seq",
    "block",
    "loss",
    "error",
}


@pytest.fixture(autouse=True)
def dark_again(qapp):
    before = theme.current(), qapp.styleSheet(), qapp.font()
    yield
    if before != (theme.current(), qapp.styleSheet(), qapp.font()):
        theme.apply(qapp, "dark")


def contrast(a: QColor, b: QColor) -> float:
    """The contrast ratio of WCAG 2, 1 to 21."""

    def luminance(c: QColor) -> float:
        parts = [
            v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4
            for v in c.getRgbF()[:3]
        ]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("mode", MODES)
def test_a_theme_is_whole_and_readable(mode):
    t = theme.load(mode)
    assert set(t.categories) == CATEGORIES and len(t.series) == 6
    for surface in (t.window, t.canvas, t.panel, t.raised, t.sunken):
        assert contrast(t.text, surface) >= 12
        assert contrast(t.text2, surface) >= 7
        for color in (t.text3, t.accent, t.back, t.run, t.warn, t.error):
            assert contrast(color, surface) >= 4.5
    for fill in (t.accentFill, t.errorFill):
        assert contrast(t.onFill, fill) >= 4.5


@pytest.mark.parametrize("mode", [name for name in MODES if theme.load(name).contrast])
def test_in_high_contrast_texts_have_7_to_1_and_graphics_3_to_1(mode):
    t = theme.load(mode)
    surfaces = (t.window, t.canvas, t.frame, t.panel, t.raised, t.sunken, t.plot)
    for surface in surfaces:
        for name in (
            "text",
            "text2",
            "text3",
            "accent",
            "back",
            "run",
            "warn",
            "error",
        ):
            assert contrast(t.color(name), surface) >= 7, name
        assert (
            contrast(t.text4, surface) >= 4.5
        )  # of disabled controls, of which WCAG asks nothing
        graphics = {
            name: t.color(name)
            for name in ("line", "line2", "line3", "wire", "wireTrain", "wireIdle")
        }
        graphics |= t.categories | {
            f"series {number}": color for number, color in enumerate(t.series)
        }
        for name, color in graphics.items():
            assert contrast(color, surface) >= 3, name
    for fill in (t.accentFill, t.errorFill):
        assert contrast(t.onFill, fill) >= 7
        assert contrast(fill, t.panel) >= 3
    for color, fill in (
        (t.accent, t.accentBg),
        (t.back, t.backBg),
        (t.run, t.runBg),
        (t.warn, t.warnBg),
        (t.error, t.errorBg),
    ):
        assert contrast(color, fill) >= 4.5 and contrast(t.text, fill) >= 7
    for fill in (t.hover, t.pressed):
        assert contrast(t.text, fill) >= 7 and contrast(t.text2, fill) >= 7
    for category in t.categories.values():  # a name on the header of a node
        assert contrast(t.text, theme.mix(t.raised, category, t.header)) >= 7
        assert contrast(category, theme.mix(t.raised, category, t.header)) >= 3


@pytest.mark.parametrize("mode", MODES)
def test_the_stylesheet_has_every_value_and_every_picture(mode, tmp_path):
    text = theme.stylesheet(theme.load(mode), tmp_path)
    assert "$" not in text
    files = re.findall(r'url\("([^"]+)"\)', text)
    assert files
    for file in set(files):
        assert "currentColor" not in open(file, encoding="utf-8").read()


def test_apply_changes_palette_and_tells(qapp, qtbot):
    theme.apply(qapp, "dark")
    with qtbot.waitSignal(theme.manager().changed):
        theme.apply(qapp, "light")
    assert theme.current().name == "light" == theme.manager().choice
    assert QApplication.palette().window().color() == theme.current().panel
    with pytest.raises(ValueError, match="dark, light, .*, system"):
        theme.apply(qapp, "blue")


def test_system_follows_the_desktop(qapp):
    theme.apply(qapp, "system")
    assert theme.manager().choice == "system"
    assert theme.current().name in MODES


def test_fonts_have_their_size(qapp):
    theme.apply(qapp, "dark")
    assert theme.font("body").pixelSize() == 13
    assert round(QFontInfo(theme.font("node")).pixelSize()) in (12, 13)
    with pytest.raises(KeyError):
        theme.font("headline")


@pytest.mark.parametrize("role", theme.ROLES)
def test_the_window_draws_with_the_fonts_that_it_brings(qapp, role):
    theme.apply(qapp, "dark")
    _, weight, mono = theme.ROLES[role]
    drawn = QFontInfo(theme.font(role))
    assert (
        drawn.family() == (theme.MONO if mono else theme.SANS)
        and drawn.weight() == weight
    )
    assert QFontInfo(QFont()).family() == theme.SANS, "of what nobody gave a font"


def test_widths_are_those_of_the_fonts_files(qapp):
    """Whatever the machine hints, embolds or has installed: units of an em, as the files have them."""
    theme.apply(qapp, "dark")
    sans, mono = (QFontMetricsF(theme.scene_font(role)) for role in ("body", "code"))
    assert sans.horizontalAdvance("0.1234") == pytest.approx(
        sans.horizontalAdvance("9.8756")
    ), "tabular figures"
    assert sans.horizontalAdvance("Conv2d") == pytest.approx(48.42, abs=0.1)
    assert mono.horizontalAdvance("!=->") == pytest.approx(4 * 0.6 * 12, abs=0.1), (
        "no ligature of another width"
    )


FOREIGN = set("ᵀ∇∗")  # in formulas: of the system's fonts, where those have them


def test_the_fonts_have_every_character_of_the_programs_own_texts(qapp):
    theme.apply(qapp, "dark")
    faces = [QRawFont.fromFont(theme.font(role)) for role in ("body", "code")]
    files = [
        *resources.path().parent.rglob("app/**/*.py"),
        *resources.path().glob("*.json"),
    ]
    letters = set().union(*(file.read_text("utf-8") for file in files)) - set("\n")
    assert len(files) > 900 and len(letters) > 150
    assert {
        each
        for each in letters
        if not any(face.supportsCharacter(ord(each)) for face in faces)
    } <= FOREIGN


def test_no_widget_names_a_font_of_its_own(qapp):
    """Else it looks and measures differently on each machine."""
    app = resources.path().parent / "app"
    files = sorted([*(app / "views").rglob("*.py"), *(app / "features").rglob("*.py")])
    named = re.compile(r"QFont\([^)\s]|setFamil|QFontDatabase\.(systemFont|font\()")
    lines = [
        f"{file.name}: {line.strip()}"
        for file in files
        for line in file.read_text("utf-8").splitlines()
        if named.search(line) and file.name not in ("theme.py", "scaling.py")
    ]
    assert len(files) > 250 and not lines
    sheets = list(resources.path("themes").glob("*.qss"))
    assert sheets and not any(
        "font-family" in sheet.read_text("utf-8") for sheet in sheets
    )


def test_mix_heat_and_names_of_colours():
    black, white = QColor("#000000"), QColor("#ffffff")
    assert theme.mix(black, white, 0) == black and theme.mix(black, white, 1) == white
    assert theme.heat(-1) == QColor("#440154") and theme.heat(7) == QColor("#FDE725")
    assert len(theme.heat_table()) == 256
    assert theme.current().color("conv") == theme.category_color("conv")
    assert theme.current().color("#123456") == QColor("#123456")
    with pytest.raises(KeyError, match="mauve"):
        theme.current().color("mauve")


@pytest.mark.parametrize("name", icons.names())
def test_every_icon_draws_in_its_colour(qapp, name):
    image = (
        icons.pixmap(name, "#FF0000", 16, 2)
        .toImage()
        .convertToFormat(QImage.Format.Format_RGBA8888)
    )
    assert image.width() == image.height() == 32
    pixels = np.frombuffer(image.constBits(), np.uint8).reshape(32, 32, 4)
    inked = pixels[pixels[..., 3] > 200]
    assert len(inked) and (inked[:, 0] > 240).all() and (inked[:, 1] < 15).all()
    alpha = pixels[..., 3]
    assert not any(
        edge.any() for edge in (alpha[0], alpha[-1], alpha[:, 0], alpha[:, -1])
    ), "cut off at its edge"


@pytest.mark.parametrize("scale", (1.0, 1.5, 2.0))
def test_icons_are_sharp_at_every_scale(qapp, scale):
    picture = icons.icon("save").pixmap(QSize(16, 16), scale)
    assert (picture.width(), picture.devicePixelRatio()) == (16 * scale, scale)


def test_an_icon_follows_the_theme_and_dims(qapp):
    save = icons.icon("save", "text")

    def ink(mode=QIcon.Mode.Normal) -> QColor:
        image = save.pixmap(QSize(32, 32), 1.0, mode).toImage()
        return max(
            (image.pixelColor(x, y) for x in range(32) for y in range(32)),
            key=lambda c: c.alpha(),
        )

    theme.apply(qapp, "dark")
    assert ink() == theme.load("dark").text
    assert ink(QIcon.Mode.Disabled) == theme.load("dark").text4
    theme.apply(qapp, "light")
    assert ink() == theme.load("light").text
    assert icons.icon("save", "text") is save


def test_unknown_icons_and_colours_are_refused(qapp):
    with pytest.raises(FileNotFoundError):
        icons.icon("unicorn")
    with pytest.raises(KeyError):
        icons.icon("save", "mauve")


def test_the_app_icon_has_all_sizes(qapp):
    assert {s.width() for s in icons.app_icon().availableSizes()} >= {16, 32, 256}


def test_the_stylesheet_parses(qapp, qtbot, capfd):
    for mode in MODES:
        theme.apply(qapp, mode)
        button = QPushButton("Run")
        qtbot.addWidget(button)
        button.grab()
    assert "parse" not in capfd.readouterr().err.lower()


def test_pictures_stand_in_folders_with_odd_names(qapp, tmp_path):
    folder = tmp_path / "Ein Ordner (2)"
    folder.mkdir()
    text = theme.stylesheet(theme.load("dark"), folder)
    assert f'url("{folder.as_posix()}/dark-down-text2.svg")' in text
    shutil.rmtree(folder)


def test_a_change_within_the_event_loop_is_painted_without_any_other_event(qapp, qtbot):
    theme.apply(qapp, "dark", 1.0)
    painted: list[str] = []

    class Painted(QPushButton):
        def paintEvent(self, event: QPaintEvent) -> None:
            super().paintEvent(event)
            painted.append(theme.current().name)

    button = Painted("in sight")
    qtbot.addWidget(button)
    with qtbot.waitExposed(button):
        button.show()
    qtbot.waitUntil(lambda: painted == ["dark"])
    QTimer.singleShot(0, lambda: theme.apply(qapp, "light", 1.5))
    try:
        with qtbot.waitSignal(theme.manager().styled):
            pass
        qtbot.waitUntil(lambda: len(painted) > 1)
        assert painted == ["dark", "light"], "once, and in the new colours"
    finally:
        theme.apply(qapp, "dark", 1.0)


def test_the_heads_of_a_table_have_the_same_size_in_the_next_theme(qtbot, qapp):
    theme.apply(qapp, "dark")
    table = FiguresTable(["A heading of some length"], "Figures", ())
    qtbot.addWidget(table)
    table.resize(400, 120)
    table.show()

    def inked_columns() -> int:
        head = table.horizontalHeader().viewport()
        image = head.grab().toImage().convertToFormat(QImage.Format.Format_Grayscale8)
        grey = np.frombuffer(image.constBits(), np.uint8)
        grey = grey.reshape(image.height(), image.bytesPerLine())[:12]  # above the line
        grey = grey[:, 2 : image.width() - 2].astype(int)
        return int((np.ptp(grey, axis=0) > 40).sum())

    before = inked_columns()
    theme.apply(qapp, "light")
    theme.apply(qapp, "dark")
    assert inked_columns() == before > 30
