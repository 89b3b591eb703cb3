"""Margins of error: intervals for nodes and regions that cover what they say, from measurements alone.

``margins`` and ``regions`` are the two ways in: answers to a query at every node, and sums, differences and shares over
any nodes. Both take the laws of the errors of least squares from ``laws/``. ``interval`` inverts the test of every
truth for one law, ``intervals`` does so for a tree, ``sum_intervals`` for a sum and a share; ``margin_words``
is what a release says of all this.
"""
