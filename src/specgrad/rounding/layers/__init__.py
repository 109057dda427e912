"""Rules of what a layer's cells have in common: masks that shut cells out, and statistics of a normalisation."""
