"""The page of a release: its numbers, what the margins of sums need, and the file."""
