"""Guesses the structure of a table without a description, and writes a first configuration for it."""
