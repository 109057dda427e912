"""The rules that errors quote, by their labels, read from docs/reference/contract.md.

The page is the only source. A checkout reads it in docs/; the wheel carries a copy beside this file.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from .errors import ParameterError

HERE = Path(__file__).parent
PAGES = HERE / "contract.md", HERE.parents[1] / "docs" / "reference" / "contract.md"
RULE = re.compile(r'<a id="(\w+)"></a>\n### (.*?)(?=\n## |\n<a id=|\Z)', re.DOTALL)


@cache
def rules() -> dict[str, str]:
    """Return every rule of the contract, by its label, in the order of the page.

    >>> list(rules())[:4]
    ['W1', 'W2', 'W3', 'same']
    """
    page = PAGES[0] if PAGES[0].exists() else PAGES[1]
    text = re.sub(r"^```python\n|^\n```\n", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {label: body.strip() for label, body in RULE.findall(text)}


def rule(label: str) -> str:
    """Return the rule of the contract with this label, as errors quote it: formula, example, enforcement.

    Parameters
    ----------
    label : str
        Its label, "W2" or "[W2]".

    Returns
    -------
    str
        The rule as it stands in docs/reference/contract.md.

    Raises
    ------
    ParameterError
        For an unknown label ([P5]).

    Examples
    --------
    >>> print(rule("P4").splitlines()[0])
    [P4] An empty batch gives an empty result
    """
    text = rules().get(label.strip("[]"))
    if text is None:
        raise ParameterError("rule", f"label must be one of {', '.join(rules())}; got {label!r}", rule="P5")
    return text
