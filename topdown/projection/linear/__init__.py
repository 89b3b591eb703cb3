"""Projections onto any linear constraints."""
