"""What is computed from a release or its measurements: sums, shares, other areas, and files for other tools."""
