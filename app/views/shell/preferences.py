"""What the Settings dialog offers. Each setting is declared here once; the dialog and the search find it by that.

A setting is a property of `app.views.settings.Settings`. Its kind follows from its value: a switch for a bool, a number
field for an int, a folder for a path, and a list where there are `choices`. It takes effect where `Settings.changed` is
connected, so the dialog needs nothing else.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from app.util.language import names
from app.views.settings import MOST_AUTOSAVE_SECONDS, MOST_PROCESSES

THEMES = (
    ("dark", "Dark"),
    ("light", "Light"),
    ("contrast-dark", "High contrast, dark"),
    ("contrast-light", "High contrast, light"),
    ("system", "Same as the system"),
)
SIZES = tuple(
    (size, f"{round(100 * size)} %") for size in (1.0, 1.1, 1.25, 1.5, 1.75, 2.0)
)


LANGUAGES = (("", "Same as the system"), *names().items())


class Preference(Struct, frozen=True):
    """A setting: the property of `Settings`, its label, a note below it, and further words to find it by."""

    name: str
    label: str
    note: str = ""
    choices: tuple[tuple[Any, str], ...] = ()
    least: float | None = None
    most: float | None = None
    words: str = ""


PREFERENCES: dict[str, tuple[Preference, ...]] = {
    "Appearance": (
        Preference(
            "theme",
            "Theme",
            choices=THEMES,
            words="dark light high contrast colours colors accessibility",
        ),
        Preference(
            "font_scale",
            "Text size",
            "Of all texts; graphs are enlarged as a whole.",
            choices=SIZES,
            words="font scale larger zoom accessibility",
        ),
        Preference(
            "thick_wires",
            "Thicker wires",
            "Wires and curves are drawn 1.75 times as thick.",
            words="width lines curves accessibility",
        ),
        Preference(
            "reduced_motion",
            "Reduce motion",
            "Turns animations off.",
            words="animation accessibility",
        ),
        Preference(
            "projector",
            "Projector",
            "Large text, high contrast, thick wires, no motion, and charts in half of the window; turning it off "
            "restores what was set before.",
            words="classroom teacher presentation beamer accessibility",
        ),
        Preference(
            "language",
            "Language",
            "Of lessons, the coach, findings and hints, from the next start; menus and forms are English.",
            choices=LANGUAGES,
            words="translation german deutsch locale sprache",
        ),
    ),
    "Files": (
        Preference(
            "reopen",
            "Reopen the last project",
            "When the program starts, in place of the start page.",
            words="startup session start page",
        ),
        Preference(
            "autosave_seconds",
            "Autosave after (s)",
            "Unsaved edits are written to a recovery file, which is offered "
            "after a crash. Your project file is written only when you save.",
            least=1,
            most=MOST_AUTOSAVE_SECONDS,
            words="autosave recovery journal backup",
        ),
        Preference(
            "data_folder",
            "Data folder",
            "Downloaded data sets are stored here.",
            words="datasets download",
        ),
        Preference(
            "library_folder",
            "Block library",
            "Blocks shared between projects.",
            words="blocks folder",
        ),
        Preference(
            "export_folder",
            "Export folder",
            "Where file dialogs for exports start.",
            words="export folder",
        ),
    ),
    "Runs": (
        Preference(
            "processes",
            "Processes",
            "1 trains in one process. With more, each batch is split across them by "
            "DistributedDataParallel on this machine.",
            least=1,
            most=MOST_PROCESSES,
            words="distributed ddp gpus",
        ),
        Preference(
            "event_files",
            "Write TensorBoard files",
            "Event files are written beside the checkpoints of each run.",
            words="tensorboard event files",
        ),
        Preference(
            "launch_blocking",
            "Wait for every CUDA kernel",
            "Sets CUDA_LAUNCH_BLOCKING=1: errors are reported at the "
            "line that caused them, and runs are slower.",
            words="cuda launch blocking debug",
        ),
    ),
}
