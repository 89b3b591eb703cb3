"""The laws of the errors of least squares.

``known_noise``: which noise was drawn where. ``answer_errors``: of which noise the errors of sums of answers are made,
with ``answer_forms`` (how answers covary) and ``sum_errors`` (how sums over nodes do). ``main_parts`` and
``shared_laws`` turn this into shapes of laws, ``error_law`` these into quantiles. ``answer_laws``: the laws of all
nodes. Where the cells alone were measured ``error_moments`` finds them in two passes over the tree.
"""
