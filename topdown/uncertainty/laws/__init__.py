"""The laws of the errors of least squares.

``known_noise``: which noise was drawn where. ``answer_errors``: the errors of sums of answers as sums of independent
noise, with ``answer_forms`` (covariances of answers) and `projection.sum_errors` (covariances of sums over nodes).
``main_parts`` and ``shared_laws`` make shapes of laws from these, and ``error_law`` makes quantiles from shapes.
``answer_laws``: the laws of all nodes. Where the cells alone were measured ``error_moments`` finds them in two passes
over the tree.
"""
