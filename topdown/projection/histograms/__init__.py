"""The solvers where several queries are measured: histograms on a tree, family by family."""
