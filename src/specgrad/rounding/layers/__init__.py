"""Rules of what a layer's cells have in common: masks that shut cells out, statistics of a normalisation, the total of
a softmax.
"""
