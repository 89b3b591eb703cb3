"""The sections of the report: each one's numbers and charts in a module, its fragment of the page beside it."""
