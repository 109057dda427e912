"""Formats of numbers, and sums that no format describes: the parts that an `Arithmetic` is made of."""
