"""Which unit lies in which: from tables, codes, edges and graphs to a tree of integers."""
