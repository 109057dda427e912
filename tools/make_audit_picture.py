"""Write docs/_static/audit.svg: what `specgrad audit` prints of a model that its exporter changed.

python tools/make_audit_picture.py      # runs the real command; needs specgrad[cli,runtimes] and torch
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

PICTURE = Path(__file__).parents[1] / "docs" / "_static" / "audit.svg"
MODEL = """import torch

torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Conv2d(1, 4, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.AvgPool2d(2, divisor_override=3),
    torch.nn.Flatten(),
    torch.nn.Linear(64, 3),
).eval()
"""
COMMAND = "specgrad audit classifier:net --runtime onnxruntime --input image.npy"
COLUMNS, WIDTH = 104, 860  # letters, and what a page without a limit shows: text of 13 pixels
BLACK, RED, GREEN, YELLOW, WHITE = (13, 17, 23), (255, 123, 114), (63, 185, 80), (210, 153, 34), (230, 237, 243)
THEME = TerminalTheme(BLACK, WHITE, [BLACK, RED, GREEN, YELLOW, WHITE, WHITE, WHITE, WHITE])  # 4.5 : 1 and more


def printed() -> str:
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "classifier.py").write_text(MODEL)
        np.save(Path(folder) / "image.npy", np.random.default_rng(0).normal(size=(1, 1, 8, 8)).astype(np.float32))
        environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS), "PYTHONPATH": folder}
        command = [sys.executable, "-m", *COMMAND.split()]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True).stdout


def main() -> None:
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
        console.print(f"$ {COMMAND}", highlight=False)
        console.print(Text.from_ansi(printed()))
        svg = console.export_svg(
            title="the model gives other numbers on another runtime: rounding or bug?", theme=THEME
        )
    svg = re.sub(r"@font-face \{.*?\}\n", "", svg, flags=re.DOTALL)  # no font from the network
    PICTURE.write_text(re.sub(r'viewBox="[^"]*"', rf'\g<0> width="{WIDTH}"', svg, count=1))


if __name__ == "__main__":
    main()
