"""The search for a verdict: attack, subproblems, branch and bound, and certificates of what was found."""
