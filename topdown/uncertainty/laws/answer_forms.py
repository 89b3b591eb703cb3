"""How answers to queries covary: as forms in the covariances of the blocks into which histograms fall.

An answer is a sum over components and blocks (`projection.components`) of a row of the block's coordinates in every
copy. So the covariance of two answers, whose histograms' coordinates have the covariances J, is the sum over blocks of
w a' J b: a and b the answers' rows in the block, and w the inner product of what both are of the copies.
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
"""To which entries of forms, whose size is that of small whole numbers, are compared."""


class Forms(NamedTuple):
    """How ``asked`` answers covary with those to one query: answers of a class covary alike, and so many (``number``,
    (classes,)) are in each.

    ``form`` (asked x classes x width): by what the covariances of all blocks' coordinates, one block after another, row
    by row, are multiplied; the first coordinate is that of what is asked.
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
    """What an answer is of every attribute's categories; of none where it is impossible."""
    own, answers = components.product.asked(query)
    matrices = design(own)
    found = [answer] if answers is None else np.flatnonzero(answers == answer).tolist()
    if not found:
        return [np.zeros(matrix.shape[1]) for matrix in matrices]
    places = np.unravel_index(found[0], tuple(len(matrix) for matrix in matrices))
    return [np.asarray(matrix[place]) for matrix, place in zip(matrices, places, strict=True)]


def _kron(left: FloatArray, right: FloatArray) -> FloatArray:
    """Row by row the products of all entries."""
    return (left[:, :, None] * right[:, None, :]).reshape(len(left), -1)


def _merged(forms: Forms) -> Forms:
    """With classes that covary alike as one."""
    key = np.round(forms.form.swapaxes(0, 1).reshape(len(forms.number), -1), _DIGITS)
    _, first, place = np.unique(key, axis=0, return_index=True, return_inverse=True)
    number = np.bincount(place.reshape(-1), forms.number).astype(np.int64)
    return Forms(number, forms.form[:, first])
