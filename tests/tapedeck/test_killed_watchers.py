"""Those who watch a script are killed; `tests.slow.kill_watchers` does it 50 times."""

from tests.slow import kill_watchers


def test_a_script_neither_stalls_nor_differs_when_its_watcher_is_killed() -> None:
    assert kill_watchers.main(1) == 0
