"""Margins of error: intervals for nodes and regions with a stated coverage, from measurements alone.

``margins`` and ``regions`` are the two ways in: answers to a query at every node, and sums, differences and shares over
any nodes. Both take the laws of the errors of least squares from ``laws/``. ``interval`` inverts a test of every
possible true value for one law, ``intervals`` does so for a tree, ``sum_intervals`` for a sum and a share;
``margin_words`` has the statements that a release publishes.
"""
