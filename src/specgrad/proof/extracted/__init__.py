"""The checker that was extracted from its proof."""
