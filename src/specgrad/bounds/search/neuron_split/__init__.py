"""Branch and bound over neurons."""
