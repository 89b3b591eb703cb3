"""Turns a release into records, one per person or household, which are tabulated again before they are published."""
