#!/bin/bash
# VNN-COMP: run_instance.sh v1 CATEGORY ONNX VNNLIB RESULTS TIMEOUT
# ONNX is a path, or a list such as [('f', 'one.onnx'), ('g', 'two.onnx')] where the query declares several networks.
# RESULTS gets unsat, unknown, timeout or error, or sat and the counterexample. SPECGRAD names another command to run.
[ "$1" = v1 ] || { echo "expected the version string v1 first, got '$1'"; exit 1; }
onnx=$3 vnnlib=$4 results=$5 seconds=$6
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
read -ra specgrad <<< "${SPECGRAD:-$here/.venv/bin/specgrad}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$(nproc)}" ORT_DISABLE_TELEMETRY=1

networks=()
if [[ $onnx == "["* ]]; then
    while IFS= read -r line; do networks+=(--network "$line"); done < <(
        python3 -c 'import ast, sys; [print(f"{n}={p}") for n, p in ast.literal_eval(sys.argv[1])]' "$onnx")
else
    networks=(--network "$onnx")
fi

rm -f "$results"
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT
timeout "$(python3 -c 'import sys; print(float(sys.argv[1]) + 50)' "$seconds")" \
    "${specgrad[@]}" verify "$vnnlib" "${networks[@]}" --timeout "$seconds" > "$answer"
code=$?
case $code in
    0 | 1 | 2) [ -s "$answer" ] || echo unknown > "$answer" ;;  # 2 and nothing said: refused by name, on stderr
    124) echo timeout > "$answer" ;;
    *) echo error > "$answer" ;;
esac
sed '1s/^timed-out$/timeout/' "$answer" > "$results"
