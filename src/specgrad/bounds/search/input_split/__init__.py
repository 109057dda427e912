"""Branch and bound over the input box."""
