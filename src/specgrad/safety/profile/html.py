"""The profile of a model as one HTML file: the verdict, every rule, every finding."""

from __future__ import annotations

from collections.abc import Sequence

from specgrad.html_page import escape, kind_of, legend, page, wide

from .report import WORDS, Profile, in_order
from .rule import Finding
from .sources import CAVEAT

MAX_FINDINGS_PER_RULE = 200  # findings of one rule
FOOT = "Supporting analysis by a tool that nobody has qualified; rules are the working group's, not ours."


def profile_page(profile: Profile, changes: Sequence[str] = ()) -> str:
    """Return the HTML page of one model; `changes` are those of its normalisation."""
    versions = ", ".join(f"{k} {v}" for k, v in profile.versions.items())
    lead = f"{escape(summary(profile))}. {escape(' '.join(CAVEAT))}"
    kinds = {profile.status(r) for r in in_order()}
    body = [
        f"<p>{escape(profile.model)}, SHA-256 <code>{profile.digest}</code>. {escape(versions)}.</p>",
        *(f"<p>{escape(note)}</p>" for note in profile.notes),
        _changes_html(changes),
        "<h2>Rules</h2>",
        legend(WORDS, kinds),
        wide(f"<table>{_rule_rows(profile)}</table>"),
        "<h2>Findings</h2>" if profile.findings else "",
        *(_findings_table(rule.id, profile.of(rule)) for rule in in_order()),
    ]
    return page(f"safety profile of {profile.model}", profile.verdict, lead, body, FOOT)


def summary(profile: Profile) -> str:
    """Return the numbers of findings by severity, as text."""
    counts = [(word, sum(f.severity == word for f in profile.findings)) for word in ("broken", "undecided")]
    said = ", ".join(f"{n} {word}" for word, n in counts if n)
    return f"{len(profile.findings)} findings: {said}" if said else "no finding"


def _changes_html(changes: Sequence[str]) -> str:
    """Return an HTML list of what normalisation changed; "" for no changes."""
    items = "".join(f"<li>{escape(text)}</li>" for text in changes)
    return f"<h2>What was written differently</h2><ul>{items}</ul>" if items else ""


def _rule_rows(profile: Profile) -> str:
    """Return the HTML table rows of all rules with their status."""
    rows = []
    for rule in in_order():
        number = len(profile.of(rule))
        link = f'<a href="#{rule.id}">{number}</a>' if number else ""
        reason = f" ({escape(profile.unchecked[rule.id])})" if rule.id in profile.unchecked else ""
        level = "error" if rule.level == "E" else "undecided by the group"
        source = f"{escape(rule.tag)}<br>{escape(rule.source)} @ {escape(rule.version)}"
        rows.append(
            f"<tr><td>{rule.id}</td><td>{kind_of(profile.status(rule))}{reason}</td><td>{link}</td>"
            f"<td>{escape(rule.sentence)}</td><td>{level}</td><td>{source}</td></tr>"
        )
    return "<tr><th>rule<th>status<th>findings<th>it says<th>breaking it is<th>tag, source @ version</tr>" + "".join(
        rows
    )


def _findings_table(rule: str, findings: Sequence[Finding]) -> str:
    """Return the HTML heading and table of the findings of the rule with the id `rule`, at most MAX_FINDINGS_PER_RULE;
    "" for none.
    """
    if not findings:
        return ""
    rows = "".join(map(_finding_row, findings[:MAX_FINDINGS_PER_RULE]))
    more = (
        f"<p>and {len(findings) - MAX_FINDINGS_PER_RULE} more (--json lists all)</p>"
        if len(findings) > MAX_FINDINGS_PER_RULE
        else ""
    )
    head = "<tr><th>severity<th>where<th>what<th>what to do</tr>"
    return f'<h3 id="{rule}">{rule}</h3>' + wide(f"<table>{head}{rows}</table>") + more


def _finding_row(finding: Finding) -> str:
    """Return the HTML table row of one finding."""
    cells = (escape(str(finding.place)), escape(finding.what), escape(finding.cure))
    return f"<tr><td>{kind_of(finding.severity)}</td>{''.join(f'<td>{c}</td>' for c in cells)}</tr>"
