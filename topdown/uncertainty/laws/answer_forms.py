"""The covariances of answers to queries, as bilinear forms in the covariances of the blocks of histograms.

An answer is a sum over components and blocks (`projection.components`) of a row of the block's coordinates in every
copy. So the covariance of two answers, whose histograms' coordinates have the covariances J, is the sum over blocks of
w a' J b: a and b are the answers' rows in the block, and w is the inner product of their weights on the copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from topdown.geography.tree import FloatArray, IntArray
from topdown.projection.histograms.components import Components
from topdown.workload import Query
from topdown.workload.query import design

_DIGITS = 9
"""The decimals to which entries of forms are compared; entries have the size of small whole numbers."""


class Forms(NamedTuple):
    """The covariances of ``asked`` answers with the answers to one query. Answers of a class have the same covariances;
    a class has ``number`` answers, (classes,).

    ``form`` (asked x classes x width): the coefficients of the covariances of all blocks' coordinates, block after
    block, row by row; the first coordinate is that of the asked answer.
    """

    number: IntArray
    form: FloatArray


def answer_forms(
    components: Components, asked: Sequence[tuple[Query, int]], query: Query, answer: int | None = None
) -> Forms:
    """The forms of ``asked`` answers to queries with the answers to ``query``, or with one ``answer`` alone."""
    of_asked, of_query, products, places, number = [], [], [], [], np.ones(1, np.int64)
    asked_rows = [answer_rows(components, *one) for one in asked]
    if answer is None:
        matrices = design(components.product.asked(query).query)
    else:
        matrices = [row[None] for row in answer_rows(components, query, answer)]
    for k, (matrix, one) in enumerate(zip(matrices, components.splits, strict=True)):
        rows = np.stack([of_each[k] for of_each in asked_rows])
        mine, theirs = rows @ one.within, matrix @ one.within
        product = rows @ matrix.T - mine @ theirs.T
        key = np.round(np.concatenate([product.T, theirs], axis=1), _DIGITS)
        _, first, counted = np.unique(key, axis=0, return_index=True, return_counts=True)
        of_asked.append(mine)
        of_query.append(theirs[first])
        products.append(product[:, first])
        places.append(len(first))
        number = np.kron(number, counted)
    grid = np.indices(places).reshape(len(places), -1)
    forms = []
    for component in components:
        weight, left, right = np.ones((len(asked), len(number))), np.ones((len(asked), 1)), np.ones((len(number), 1))
        for k, place in enumerate(grid):
            if k in component.deviating:
                weight = weight * products[k][:, place]
            else:
                left, right = _kron(left, of_asked[k]), _kron(right, of_query[k][place])
        for block in component.blocks:
            a, b = left @ block.basis, right @ block.basis
            form = weight[:, :, None, None] * a[:, None, :, None] * b[None, :, None, :]
            forms.append(form.reshape(len(asked), len(number), -1))
    return _merged(Forms(number, np.concatenate(forms, axis=2)))


def answer_rows(components: Components, query: Query, answer: int) -> list[FloatArray]:
    """An answer as weights of every attribute's categories; all 0 where it is impossible."""
    own, answers = components.product.asked(query)
    matrices = design(own)
    found = [answer] if answers is None else np.flatnonzero(answers == answer).tolist()
    if not found:
        return [np.zeros(matrix.shape[1]) for matrix in matrices]
    places = np.unravel_index(found[0], tuple(len(matrix) for matrix in matrices))
    return [np.asarray(matrix[place]) for matrix, place in zip(matrices, places, strict=True)]


def _kron(left: FloatArray, right: FloatArray) -> FloatArray:
    """The products of all pairs of entries, row by row."""
    return (left[:, :, None] * right[:, None, :]).reshape(len(left), -1)


def _merged(forms: Forms) -> Forms:
    """The forms, with classes of equal covariances merged."""
    key = np.round(forms.form.swapaxes(0, 1).reshape(len(forms.number), -1), _DIGITS)
    _, first, place = np.unique(key, axis=0, return_index=True, return_inverse=True)
    number = np.bincount(place.reshape(-1), forms.number).astype(np.int64)
    return Forms(number, forms.form[:, first])
