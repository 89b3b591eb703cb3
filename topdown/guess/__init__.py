"""What a table that nobody described seems to be, and a first configuration for it."""
