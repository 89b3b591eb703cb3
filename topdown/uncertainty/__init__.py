"""Margins of error: intervals for nodes and regions that cover what they say, from measurements alone."""
