"""What the system says of a failure is in the language of the program."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.slow.other_machines import MACHINES, MachineError

CODE = """
import errno, os
from app.views.app import make_application
make_application()
print(os.strerror(errno.ENAMETOOLONG), float("1.5"), f"{1.5:n}")
"""


@pytest.mark.skipif(
    shutil.which("localedef") is None, reason="no other locale can be made here"
)
def test_errors_of_the_system_are_in_english_under_every_locale(tmp_path: Path) -> None:
    try:
        german = MACHINES["german"].make(tmp_path)
    except MachineError as why:
        pytest.skip(str(why))
    told = german.run(
        [
            "-c",
            "import locale, os; locale.setlocale(locale.LC_ALL, ''); print(os.strerror(36))",
        ]
    )
    if "File name too long" in told.stdout:
        pytest.skip("the C library has no translations here")
    assert german.run(["-c", CODE]).stdout.startswith("File name too long 1.5")
