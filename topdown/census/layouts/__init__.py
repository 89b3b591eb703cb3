"""What the Census Bureau's files look like: their members, columns and codes."""
