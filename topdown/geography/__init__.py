"""The hierarchy of units: from tables, codes, edges and graphs to a tree of integers."""
