"""The small widgets that the views are made of: themed, sized to their text, and all of them for the keyboard too."""

from app.views.widgets.banner import Banner
from app.views.widgets.button import Button, icon_button
from app.views.widgets.chip import Chip
from app.views.widgets.counter import Counter
from app.views.widgets.empty import EmptyState
from app.views.widgets.fields import ChoiceField, TextField
from app.views.widgets.heatbar import HeatBar
from app.views.widgets.numbers import NumberField, NumbersField
from app.views.widgets.painting import Glyph, Line, label
from app.views.widgets.search import SearchField
from app.views.widgets.section import Section
from app.views.widgets.segmented import Segmented
from app.views.widgets.tabs import ToolTabs
from app.views.widgets.toast import Toast, ToastStack
from app.views.widgets.toggle import Toggle
from app.views.widgets.transport import BackwardTransport, Transport

__all__ = [
    "BackwardTransport",
    "Banner",
    "Button",
    "Chip",
    "ChoiceField",
    "Counter",
    "EmptyState",
    "Glyph",
    "HeatBar",
    "Line",
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
