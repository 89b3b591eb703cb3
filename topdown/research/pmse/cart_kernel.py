"""Greedy trees by Gini impurity, compiled: the features are sorted once and stay sorted in every node.

The trees are scikit-learn's (DecisionTreeClassifier, best splits, random_state 0) to the last bit of a threshold:
values in single precision, values within 1e-7 are one, the first of several equally good splits is taken, and the
features of a node are looked at in the order of the same shuffle. scikit-learn sorts them anew in every node, and takes
several times as long.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from topdown.machine.compiled import compiled

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
SingleArray = npt.NDArray[np.float32]

SHUFFLE = 209_652_396
"""The seed of the shuffle of features, of which scikit-learn draws it with random_state 0."""

_SAME = np.float32(1e-7)
_NO_GAIN = 2.0**-52


@compiled
def grow(
    values: SingleArray, order: IntArray, labels: IntArray, depth: int, min_split: int, min_leaf: int
) -> tuple[IntArray, IntArray, IntArray, FloatArray, IntArray, IntArray, IntArray]:
    """Grow on all records: (left, right, feature, threshold, rows, synthetic) by node, and every record's leaf.

    ``values`` (features x records); ``order``: the records in the order of each feature, which becomes their order node
    by node; ``labels`` 0 or 1. A node's children come after it, the left one first with all that is below it; a leaf
    has -1 for children and feature.
    """
    n_features, n = values.shape
    room = 2 * max(1, n // max(1, min_leaf)) + 1
    left, right = np.full(room, -1), np.full(room, -1)
    feature, threshold = np.full(room, -1), np.zeros(room)
    rows, synthetic = np.zeros(room, np.int64), np.zeros(room, np.int64)
    leaf_of = np.zeros(n, np.int64)
    goes_left, aside = np.zeros(n, np.bool_), np.zeros(n, np.int64)
    features, constant = np.arange(n_features), np.zeros(n_features, np.int64)
    seed = np.uint32(SHUFFLE)
    # Nodes that wait: first record, end, depth, parent, whether they are its left child, features known to be constant.
    waiting, impurities = np.zeros((room, 6), np.int64), np.zeros(room)
    waiting[0, 1], waiting[0, 3] = n, -1
    n_waiting, n_nodes = 1, 0
    while n_waiting:
        n_waiting -= 1
        start, end, level, parent, is_left, n_known = waiting[n_waiting]
        total = 0
        for at in range(start, end):
            total += labels[order[0, at]]
        m, a = float(end - start), float(total)
        impurity = _impurity(m, a) if parent < 0 else impurities[n_waiting]
        node, n_nodes = n_nodes, n_nodes + 1
        rows[node], synthetic[node] = end - start, total
        if parent >= 0:
            if is_left:
                left[parent] = node
            else:
                right[parent] = node
        best_at = end
        best_feature, best, best_threshold = -1, -np.inf, 0.0
        if level < depth and end - start >= max(min_split, 2 * min_leaf) and impurity > _NO_GAIN:
            last, n_found, n_drawn = n_features, 0, 0
            while last > n_known + n_found:
                seed ^= np.uint32(seed << np.uint32(13))
                seed ^= np.uint32(seed >> np.uint32(17))
                seed ^= np.uint32(seed << np.uint32(5))
                drawn = n_drawn + (np.int64(seed) % 2**31) % (last - n_found - n_drawn)
                if drawn < n_known:
                    features[n_drawn], features[drawn] = features[drawn], features[n_drawn]
                    n_drawn += 1
                    continue
                drawn += n_found
                f = features[drawn]
                sequence, value = order[f], values[f]
                if value[sequence[end - 1]] <= value[sequence[start]] + _SAME:
                    features[drawn], features[n_known + n_found] = features[n_known + n_found], features[drawn]
                    n_found += 1
                    continue
                last -= 1
                features[last], features[drawn] = features[drawn], features[last]
                a_left, before = 0, value[sequence[start]]
                for at in range(start + 1, end):
                    a_left += labels[sequence[at - 1]]
                    here = value[sequence[at]]
                    apart = not here <= before + _SAME
                    if apart and at - start >= min_leaf and end - at >= min_leaf:
                        quality = _quality(float(at - start), float(a_left), float(end - at), float(total - a_left))
                        if quality > best:
                            best, best_at, best_feature = quality, at, f
                            best_threshold = before / 2.0 + here / 2.0
                    before = here
            features[:n_known] = constant[:n_known]
            constant[n_known : n_known + n_found] = features[n_known : n_known + n_found]
            n_known += n_found
        if best_at < end:
            m_left, a_left = float(best_at - start), 0
            for at in range(start, best_at):
                a_left += labels[order[best_feature, at]]
            below = _impurity(m_left, float(a_left))
            above = _impurity(m - m_left, a - a_left)
            gain = m / n * (impurity - (m - m_left) / m * above - m_left / m * below)
            if gain + _NO_GAIN < 0.0:
                best_at = end
        if best_at == end:
            for at in range(start, end):
                leaf_of[order[0, at]] = node
            continue
        feature[node], threshold[node] = best_feature, best_threshold
        for at in range(start, end):
            goes_left[order[best_feature, at]] = at < best_at
        for f in range(n_features):
            if f != best_feature:
                to, n_aside = start, 0
                for at in range(start, end):
                    record = order[f, at]
                    if goes_left[record]:
                        order[f, to] = record
                        to += 1
                    else:
                        aside[n_aside] = record
                        n_aside += 1
                order[f, to:end] = aside[:n_aside]
        for side in range(2):
            waiting[n_waiting, 0] = start if side else best_at
            waiting[n_waiting, 1] = best_at if side else end
            waiting[n_waiting, 2], waiting[n_waiting, 3] = level + 1, node
            waiting[n_waiting, 4], waiting[n_waiting, 5] = side, n_known
            impurities[n_waiting] = below if side else above
            n_waiting += 1
    return (
        left[:n_nodes],
        right[:n_nodes],
        feature[:n_nodes],
        threshold[:n_nodes],
        rows[:n_nodes],
        synthetic[:n_nodes],
        leaf_of,
    )


@compiled
def _impurity(m: float, a: float) -> float:
    """Gini impurity of ``m`` records, ``a`` of them synthetic."""
    return 1.0 - ((m - a) * (m - a) + a * a) / (m * m)


@compiled
def _quality(m_left: float, a_left: float, m_right: float, a_right: float) -> float:
    """Minus the impurities of two parts, weighted by their records: the greater the better."""
    return -m_right * _impurity(m_right, a_right) - m_left * _impurity(m_left, a_left)
