"""Write docs/_static/audit.svg and audit-narrow.svg: what `specgrad audit` prints of a model that its exporter changed.

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

FOLDER = Path(__file__).parents[1] / "docs" / "_static"
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
TITLE = "the model gives other numbers on another runtime: rounding or bug?"
COMMAND = "specgrad audit classifier:net --runtime onnxruntime --input image.npy"
SIZES = {"audit": (104, 860), "audit-narrow": (44, 364)}
"""Letters in a line, and the width in pixels: text of 13 pixels on a page without a limit, and on a phone."""
BLACK, RED, GREEN, YELLOW, WHITE = (13, 17, 23), (255, 123, 114), (63, 185, 80), (210, 153, 34), (230, 237, 243)
THEME = TerminalTheme(BLACK, WHITE, [BLACK, RED, GREEN, YELLOW, WHITE, WHITE, WHITE, WHITE])  # 4.5 : 1 and more


def printed(columns: int) -> str:
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "classifier.py").write_text(MODEL)
        np.save(Path(folder) / "image.npy", np.random.default_rng(0).normal(size=(1, 1, 8, 8)).astype(np.float32))
        environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(columns), "PYTHONPATH": folder}
        command = [sys.executable, "-m", *COMMAND.split()]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True).stdout


def picture(columns: int, width: int) -> str:
    """The SVG of a window with so many letters in a line."""
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=columns, file=nowhere, force_terminal=True)
        console.print(f"$ {COMMAND}", highlight=False)
        console.print(Text.from_ansi(printed(columns)))
        svg = console.export_svg(title=TITLE if columns > len(TITLE) + 20 else "", theme=THEME)
    svg = re.sub(r"@font-face \{.*?\}\n", "", svg, flags=re.DOTALL)  # no font from the network
    return re.sub(r'viewBox="[^"]*"', rf'\g<0> width="{width}"', svg, count=1)


def main() -> None:
    for name, (columns, width) in SIZES.items():
        (FOLDER / f"{name}.svg").write_text(picture(columns, width))


if __name__ == "__main__":
    main()
