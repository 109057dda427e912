#!/bin/bash
# VNN-COMP: install_tool.sh v1 - once, from a checkout of this repository; the CPU alone is used
set -e
[ "$1" = v1 ] || { echo "expected the version string v1 first, got '$1'"; exit 1; }
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
python3 -m venv "$here/.venv"
"$here/.venv/bin/pip" install torch --index-url https://download.pytorch.org/whl/cpu
"$here/.venv/bin/pip" install "$here/../..[cli,runtimes,vnnlib]"
"$here/.venv/bin/specgrad" --version
