"""Greedy trees by Gini impurity, compiled: the features are sorted once and stay sorted in every node.

The trees equal scikit-learn's (DecisionTreeClassifier, best splits, random_state 0) to the last bit of a threshold:
values in single precision, values within 1e-7 are equal, the first of several equally good splits is taken, and the
features of a node are examined in the order of the same shuffle. scikit-learn sorts them again in every node, which
takes several times as long.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from topdown.machine.compiled import compiled

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
SingleArray = npt.NDArray[np.float32]

SHUFFLE = 209_652_396
"""The seed of the shuffle of features, which scikit-learn draws with random_state 0."""

_SAME = np.float32(1e-7)
_NO_GAIN = 2.0**-52


@compiled
def sorted_order(values: SingleArray) -> IntArray:
    """(features x records): the records in the order of each feature, equal values as they come; no NaN.

    By the bits of the numbers, 11 at a time, which takes less time than comparisons.
    """
    n_features, n = values.shape
    found = np.empty((n_features, n), np.int64)
    keys, other_keys, other = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    ends = np.empty(2049, np.int64)
    for f in range(n_features):
        bits = (values[f] + np.float32(0.0)).view(np.int32)  # -0 is 0
        order = np.arange(n)
        for k in range(n):
            keys[k] = np.int64(bits[k]) + 2**31 if bits[k] >= 0 else np.int64(~bits[k])
        for shift in (0, 11, 22):
            ends[:] = 0
            for k in range(n):
                ends[((keys[k] >> shift) & 2047) + 1] += 1
            for k in range(2048):
                ends[k + 1] += ends[k]
            for k in range(n):
                digit = (keys[k] >> shift) & 2047
                other_keys[ends[digit]], other[ends[digit]] = keys[k], order[k]
                ends[digit] += 1
            keys, other_keys = other_keys, keys
            order, other = other, order
        found[f] = order
    return found


@compiled
def grow(
    values: SingleArray,
    order: IntArray,
    labels: IntArray,
    depth: int,
    min_split: int,
    min_leaf: int,
    least_errors: float,
) -> tuple[IntArray, IntArray, IntArray, FloatArray, IntArray, IntArray, IntArray]:
    """Grow on all records: (left, right, feature, threshold, rows, synthetic) by node, and every record's leaf.

    ``values`` (features x records); ``order``: the records in the order of each feature, which becomes their order node
    by node; ``labels`` 0 or 1. A node that misclassifies at most ``least_errors`` records stays a leaf, as pruning at
    that price would make it one again; scikit-learn's trees are grown without. A node's children come after it, the
    left one first with all that is below it; a leaf has -1 for children and feature.
    """
    n_features, n = values.shape
    room = 2 * max(1, n // max(1, min_leaf)) + 1
    left, right = np.full(room, -1), np.full(room, -1)
    feature, threshold = np.full(room, -1), np.zeros(room)
    rows, synthetic = np.zeros(room, np.int64), np.zeros(room, np.int64)
    leaf_of = np.zeros(n, np.int64)
    # The values and labels in the order of each feature, node by node, so that values that are read together are
    # adjacent in memory.
    ordered, ones = np.empty((n_features, n), np.float32), np.empty((n_features, n), np.uint8)
    for f in range(n_features):
        for at in range(n):
            ordered[f, at], ones[f, at] = values[f, order[f, at]], labels[order[f, at]]
    goes_left, aside = np.zeros(n, np.uint8), np.zeros(n, np.int64)
    aside_values, aside_ones = np.empty(n, np.float32), np.empty(n, np.uint8)
    features, constant = np.arange(n_features), np.zeros(n_features, np.int64)
    seed = np.uint32(SHUFFLE)
    # Nodes still to be split: first record, end, depth, parent, whether they are its left child, features known to be
    # constant.
    waiting, impurities = np.zeros((room, 6), np.int64), np.zeros(room)
    waiting[0, 1], waiting[0, 3] = n, -1
    n_waiting, n_nodes = 1, 0
    while n_waiting:
        n_waiting -= 1
        start, end, level, parent, is_left, n_known = waiting[n_waiting]
        total = 0
        for at in range(start, end):
            total += ones[0, at]
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
        best_feature, best, best_threshold, enough = -1, -np.inf, 0.0, -1.0
        may_split = level < depth and end - start >= max(min_split, 2 * min_leaf) and min(a, m - a) > least_errors
        if may_split and impurity > _NO_GAIN:
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
                value, one = ordered[f], ones[f]
                if value[end - 1] <= value[start] + _SAME:
                    features[drawn], features[n_known + n_found] = features[n_known + n_found], features[drawn]
                    n_found += 1
                    continue
                last -= 1
                features[last], features[drawn] = features[drawn], features[last]
                a_low = 0.0
                for at in range(start, start + min_leaf - 1):
                    a_low += one[at]
                for at in range(start + min_leaf, end - min_leaf + 1):
                    a_low += one[at - 1]
                    m_low, m_high, a_high = float(at - start), float(end - at), a - a_low
                    # The quality is 2 (a_low^2/m_low + a_high^2/m_high - a); a bound without a division
                    # excludes most splits.
                    if a_low * a_low * m_high + a_high * a_high * m_low >= enough * m_low * m_high:
                        before, here = value[at - 1], value[at]
                        if not here <= before + _SAME:
                            quality = _quality(m_low, a_low, m_high, a_high)
                            if quality > best:
                                best, best_at, best_feature = quality, at, f
                                best_threshold = before / 2.0 + here / 2.0
                                # Below the best by more than any rounding.
                                enough = best / 2.0 + a - 1e-9 * m
            features[:n_known] = constant[:n_known]
            constant[n_known : n_known + n_found] = features[n_known : n_known + n_found]
            n_known += n_found
        if best_at < end:
            m_left, a_left = float(best_at - start), 0
            for at in range(start, best_at):
                a_left += ones[best_feature, at]
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
                # Both are written, because a branch could not be predicted.
                for at in range(start, end):
                    record, value_at, one_at = order[f, at], ordered[f, at], ones[f, at]
                    order[f, to], ordered[f, to], ones[f, to] = record, value_at, one_at
                    aside[n_aside], aside_values[n_aside], aside_ones[n_aside] = record, value_at, one_at
                    to += goes_left[record]
                    n_aside += 1 - goes_left[record]
                order[f, to:end], ordered[f, to:end] = aside[:n_aside], aside_values[:n_aside]
                ones[f, to:end] = aside_ones[:n_aside]
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
    """Minus the impurities of two parts, weighted by their records; larger is better."""
    return -m_right * _impurity(m_right, a_right) - m_left * _impurity(m_left, a_left)


@compiled
def pruned_pmse(
    values: SingleArray,
    order: IntArray,
    labels: IntArray,
    depths: IntArray,
    prices: FloatArray,
    min_split: int,
    min_leaf: int,
) -> FloatArray:
    """(depths x prices): the pMSE of one tree, cut off at each of ``depths`` and pruned at each of ``prices``.

    A price is the misclassified records that a leaf must save (rpart's cp times the root's). ``values``, ``order``
    (which is used up) and ``labels`` as in `grow`. The trees are grown depth first, so that one of a smaller depth is
    this one cut off, but for which of two equally good splits is taken.
    """
    left, right, _, _, rows, synthetic, _ = grow(values, order, labels, depths.max(), min_split, min_leaf, prices.min())
    n_nodes, share = len(left), synthetic[0] / rows[0]
    level = np.zeros(n_nodes, np.int64)
    for node in range(n_nodes):
        if left[node] >= 0:
            level[left[node]] = level[right[node]] = level[node] + 1
    found = np.empty((len(depths), len(prices)))
    cost, gain = np.empty(n_nodes), np.empty(n_nodes)
    for i in range(len(depths)):
        for j in range(len(prices)):
            for node in range(n_nodes - 1, -1, -1):
                m, a = float(rows[node]), float(synthetic[node])
                cost[node], gain[node] = min(a, m - a) + prices[j], (a - share * m) ** 2 / m
                if left[node] >= 0 and level[node] < depths[i]:
                    split = cost[left[node]] + cost[right[node]]
                    if split < cost[node] * (1 - 1e-12):
                        cost[node], gain[node] = split, gain[left[node]] + gain[right[node]]
            found[i, j] = gain[0] / rows[0]
    return found
