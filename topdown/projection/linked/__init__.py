"""Households and persons together: one family's program, whole numbers that can be dealt into households."""
