#!/bin/sh
# Print the newest Python that this project runs on: tools/python.sh [a Python to use instead]
suits() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null
}

if [ -n "$1" ]; then
    suits "$1" && { command -v "$1"; exit 0; }
    echo "PYTHON=$1 is not there, or not 3.11, 3.12 or 3.13." >&2
    exit 2
fi

for python in python3.13 python3.12 python3.11 python3 python; do
    if suits "$python"; then
        if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
            command -v "$python"
            exit 0
        fi
        lacking=$python
    fi
done

if [ -n "$lacking" ]; then
    echo "$lacking has no venv module: install it (Debian, Ubuntu: apt install $lacking-venv)." >&2
else
    echo "No Python 3.11, 3.12 or 3.13 was found. Install one, or say where: make book PYTHON=…" >&2
fi
exit 2
