"""Shared by all HTML pages: style, scripts, the style of charts, outlines of units."""
