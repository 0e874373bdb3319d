#!/usr/bin/env bash
# Make or refresh the virtual environment that every make target runs in.
#   scripts/environment.sh [FOLDER]      FOLDER is .venv if not given
#   PYTHON=...                           the interpreter to build it on, else the first fitting one is taken
#   TORCH_INDEX=URL                      the package index that torch and torchvision come from, and what they need beyond
#                                        constraints.txt; all else comes from the usual one, by its hash
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:-.venv}

fits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null; }

stop() {
    printf '%s\n' '' "$@" >&2
    exit 1
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.11 python3.12 python3.13 python3.14 python}; do
        if fits "$candidate"; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    stop "Tapedeck needs Python 3.11 or newer, and ${PYTHON:-no python3 on the PATH} is not that." \
        "Debian 12, Ubuntu 24.04 and later:  apt-get install python3 python3-venv" \
        "Fedora:  dnf install python3         Arch:  pacman -S python         macOS:  brew install python@3.13" \
        "Another one by name:  make PYTHON=/path/to/python3.12 run"
}

if ! fits "$venv/bin/python"; then
    python=$(find_python)
    # Debian keeps the part of venv that brings pip in a package of its own.
    "$python" -c 'import venv, ensurepip' 2>/dev/null || stop \
        "$python cannot make a virtual environment: its venv or ensurepip module is missing." \
        "Debian, Ubuntu:  apt-get install python3-venv" \
        "Then run the same command again."
    echo "Making the environment $venv on $("$python" --version)"
    "$python" -m venv --clear "$venv"
fi

pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }

# First all that has a hash, so that nothing of it is taken from the index of torch.
pip install --require-hashes --no-deps --requirement constraints.txt
pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} --requirement constraints-torch.txt
# The build tools are pinned as everything else is, hence no isolated build.
pip install --no-deps --no-build-isolation --editable .
pip check
touch "$venv/.installed"
