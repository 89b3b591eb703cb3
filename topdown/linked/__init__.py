"""Two tables that are one: households and the persons in them, schools and their pupils, firms and their jobs."""
