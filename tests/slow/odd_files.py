"""Pictures, tables and weights as they come, each read as Pillow, pandas and torch read it, or named by its cause.

    python -m tests.slow.odd_files

prints a row for each file, and ends with 1 if one has other values without a sentence that says so.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.slow.odd_pictures import check_picture, picture_kinds
from tests.slow.odd_tables import check_table, table_kinds
from tests.slow.odd_weights import check_weights, weight_kinds


def main() -> int:
    """Check every file; return 1 if one is at fault."""
    faults = 0
    for title, kinds, check in (
        ("pictures", picture_kinds(), check_picture),
        ("tables", table_kinds(), check_table),
        ("forms of a state_dict", weight_kinds(), check_weights),
    ):
        rows = []
        for name in kinds:
            with tempfile.TemporaryDirectory() as folder:
                rows.append(check(name, Path(folder)))
        print(f"\n{len(rows)} {title}: {sum(not row.fault for row in rows)} right\n")
        for row in rows:
            print(
                f"{'FAULT' if row.fault else 'right':5}  {row.name:34}  {row.fault or row.outcome}"
            )
        faults += sum(bool(row.fault) for row in rows)
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
