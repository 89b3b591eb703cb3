"""Solvers for measurements of the cells alone: scalars on a tree."""
