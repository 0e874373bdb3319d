"""Themed widgets that the views are built from, all usable by keyboard."""

from app.views.ui.widgets.banner import Banner
from app.views.ui.widgets.button import Button, icon_button
from app.views.ui.widgets.chip import ShapeChip
from app.views.ui.widgets.counter import Counter
from app.views.ui.widgets.empty import EmptyState
from app.views.ui.widgets.fields import ChoiceField, TextField
from app.views.ui.widgets.heatbar import HeatBar
from app.views.ui.widgets.numbers import NumberField, NumbersField
from app.views.ui.widgets.painting import Divider, Glyph, label
from app.views.ui.widgets.search import SearchField
from app.views.ui.widgets.section import Section
from app.views.ui.widgets.segmented import Segmented
from app.views.ui.widgets.tabs import ToolTabs
from app.views.ui.widgets.toast import Toast, ToastStack
from app.views.ui.widgets.toggle import Toggle
from app.views.ui.widgets.transport import BackwardTransport, Transport

__all__ = [
    "BackwardTransport",
    "Banner",
    "Button",
    "ShapeChip",
    "ChoiceField",
    "Counter",
    "EmptyState",
    "Glyph",
    "HeatBar",
    "Divider",
    "NumberField",
    "NumbersField",
    "SearchField",
    "Section",
    "Segmented",
    "TextField",
    "Toast",
    "ToastStack",
    "Toggle",
    "ToolTabs",
    "Transport",
    "icon_button",
    "label",
]
