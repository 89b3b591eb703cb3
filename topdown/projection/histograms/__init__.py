"""Solvers for measurements of several queries: histograms on a tree, family by family."""
