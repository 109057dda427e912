"""Write a failing test case as a stand-alone script that needs only the runtime and numpy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from specgrad.atomic_files import refuse_foreign, write_whole
from specgrad.scalar import Array

from ..cases.op_case import OpCase
from ..runtimes import Runtime
from ..verdicts.judge import Verdict, expected
from ..verdicts.run_case import arithmetic_of

MARK = "# Written by specgrad, which may overwrite or remove this file."


def marked(script: str) -> str:
    """Return the script with the line that marks files of specgrad."""
    return f"{MARK}\n{script}"


def is_script(data: bytes) -> bool:
    """Return whether specgrad wrote the script whose bytes are `data`, by its mark."""
    return MARK.encode() in data[:4000]


def _number_text(v: float) -> str:
    """Return the float v as source text: 3, 0.5, nan, inf."""
    if np.isnan(v):
        return "nan"
    if np.isinf(v):
        return "inf" if v > 0 else "-inf"
    return repr(int(v)) if v == int(v) and abs(v) < 2**24 else repr(float(np.float32(v)))


def literal(a: Array, dtype: str = "np.float32") -> str:
    """Return the array a as source text that restores its shape, in the type `dtype`."""
    flat = ", ".join(_number_text(float(v)) for v in a.ravel())
    shape = f".reshape{tuple(a.shape)}" if a.ndim != 1 else ""
    return f"np.array([{flat}], {dtype}){shape}"


def reproduction(question: OpCase, runtime: Runtime, verdict: Verdict) -> str:
    """Return a case as the text of a Python script: the runtime's program, the data, what must come out, what came out
    by the verdict.
    """
    balls = expected(question, arithmetic_of(runtime))
    number = question.answers().index(verdict.result) if verdict.result in question.answers() else 0
    names = question.inputs()
    environment = [f'os.environ["{k}"] = "{v}"' for k, v in runtime.environment.items()]
    versions = ", ".join(f"{k} {v}" for k, v in runtime.versions().items())
    lines = [
        f"# {question}",
        f"# {versions}: {verdict}",
        *(["import os", *environment] if environment else []),
        "import numpy as np",
        "from numpy import inf, nan  # noqa: F401",
        runtime.program(question).replace("import numpy as np\n", "").rstrip(),
        "",
        *(f"{name} = {literal(a)}" for name, a in names.items()),
        f"must_be = {literal(balls[number].value, 'float')}",
        f"got = run({', '.join(names)})[{number}]",
        'print("must be", must_be.shape, must_be.ravel().tolist())',
        'print("got    ", got.shape, got.ravel().tolist())',
    ]
    return "\n".join(lines) + "\n"


def write_scripts(scripts: Mapping[str, str], folder: Path, *, force: bool = False) -> None:
    """Write `scripts` ({file name: text}) into a folder; raise FileExistsError for files of others, unless `force`."""
    paths = {folder / name: text for name, text in scripts.items()}
    if not force:
        for path in paths:
            refuse_foreign(path, is_script)
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in paths.items():
        write_whole(path, marked(text))
