"""Commands for those who received a release: they read only its public files."""
