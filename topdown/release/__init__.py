"""What is published: whole counts, their tables, the manifest, and the public folder, which appears complete or not at
all.
"""
