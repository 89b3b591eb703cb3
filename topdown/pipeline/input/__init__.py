"""From the tables that a configuration names to units, confidential counts and limits."""
