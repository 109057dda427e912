#!/bin/bash
# VNN-COMP: prepare_instance.sh v1 CATEGORY ONNX VNNLIB - no analysis: the modules are read once, so that they are at hand
[ "$1" = v1 ] || { echo "expected the version string v1 first, got '$1'"; exit 1; }
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
read -ra specgrad <<< "${SPECGRAD:-$here/.venv/bin/specgrad}"
exec "${specgrad[@]}" supports --onnx-opset-versions > /dev/null
