#!/usr/bin/env bash
# Make or refresh the virtual environment that every make target runs in.
#   scripts/environment.sh [FOLDER]      FOLDER is .venv if not given
#   PYTHON=...                           the interpreter to build it on, else the first fitting one is taken
#   TORCH_INDEX=URL                      a further package index, for builds of torch that the usual one does not have
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

install() { "$venv/bin/python" -m pip install --disable-pip-version-check --constraint constraints.txt "$@"; }

# torch first and by itself: it is the big one, and the only one that may come from an index of its own.
install ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} torch torchvision
# The build tools are pinned as everything else is, hence no isolated build.
install hatchling
install --no-build-isolation --editable '.[test,dev]'
touch "$venv/.installed"
