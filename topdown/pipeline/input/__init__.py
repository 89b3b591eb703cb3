"""Reads units, confidential counts and limits from the tables that a configuration names."""
