"""Draw the pictures of docs/guide/pictures.md: python tools/make_pictures.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "guide" / "pictures"


def network(name: str, *shape: int) -> Any:
    """A network of examples/."""
    import specgrad as sg

    if str(ROOT / "examples") not in sys.path:
        sys.path.insert(0, str(ROOT / "examples"))
    module = __import__(name)
    return sg.trace(module.net, module.shapes(), shape)


def pictures() -> dict[str, Any]:
    import specgrad as sg

    return {
        "window": sg.show_window(size=7, kernel=3, stride=2, padding=1),
        "dilated": sg.show_window(size=8, kernel=3, stride=2, padding=1, dilation=2, ceil=True, operator="avg_pool"),
        "plane": sg.show_window(size=(5, 5), kernel=3, stride=2, padding=1),
        "resnet18": network("resnet18", 1, 3, 224, 224).draw(),
        "unet": network("unet", 1, 1, 64, 64).draw(),
        "lenet-vjp": sg.vjp(network("lenet", 1, 1, 28, 28)).draw(),
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, picture in pictures().items():
        picture.save(FOLDER / f"{name}.svg")
