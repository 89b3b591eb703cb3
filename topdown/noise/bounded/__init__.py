"""Noise within bounds: truncated, boundary-inflated and normalised Laplace laws, and scales that keep their promise."""
