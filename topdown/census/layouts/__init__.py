"""The layouts of the Census Bureau's files: their members, columns and codes."""
