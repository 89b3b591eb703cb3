"""What is published: whole counts, their tables, the manifest, and the folder that appears whole or not at all."""
