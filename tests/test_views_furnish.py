"""The pages are made step by step from modules that a worker has imported."""

import subprocess
import sys

TELLING = """
import sys
from app.settings import Settings
from app.views import furnish
from app.views.main_window import MainWindow
from app.views.window_app import make_application

make_application(["tapedeck"])
window = MainWindow(Settings("TapedeckTest", "furnish"))
furnish.load_modules()
before = set(sys.modules)
late = []
for _ in furnish.furnishing(window):
    late += sorted(name for name in sys.modules.keys() - before if name.startswith("app."))
    before = set(sys.modules)
print(late, "torch" in sys.modules, flush=True)
import os
os._exit(0)
"""


def test_no_page_imports_what_the_worker_could_have():
    done = subprocess.run([sys.executable, "-c", TELLING], capture_output=True, text=True)
    assert done.stdout.split("\n")[0] == "[] False", done.stdout + done.stderr
