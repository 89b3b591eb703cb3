"""Certificates of optimality, and second solutions by cvxpy."""
