"""The solvers where only the cells are measured: scalars on a tree."""
