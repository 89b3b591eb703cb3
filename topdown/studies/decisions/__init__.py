"""Decisions that are taken from released counts, and how fair they are."""
