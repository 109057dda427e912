"""Are two graphs one function? Normal forms over exact numbers, whose equality is a proof."""
