"""Numbers where a kind of integer, signed or not, ends; 2^53 is where float64 stops to tell whole numbers apart."""

from __future__ import annotations

EDGES = tuple((1 << bits) + step for bits in (7, 8, 15, 16, 31, 32, 53) for step in (-1, 0, 1))
