"""Expressions over counts, such as ``children >= 10 and children > 0.02 * school_age``: parsed, never run as Python.

Names are cells, named sums and columns; a name with other characters stands in backquotes. There are numbers,
``+ - * /``, comparisons, ``and``, ``or``, ``not``, ``a if condition else b``, and the functions of `FUNCTIONS`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from topdown.errors import ConfigError
from topdown.geography.tree import FloatArray
from topdown.wording import listed, shown

_LONGEST = 4_000
"""Characters of an expression, at most."""

_DEEPEST = 60
"""The most nested operations."""

_TIE = 1e-12
"""Numbers are equal where they differ by no more than this part of what they are computed from; rounding to float64
makes less of a difference."""


def apart(value: Any, other: Any, size: Any) -> FloatArray:
    """``value`` - ``other``, and 0 where that is no more than the rounding of numbers as large as ``size``: 0.57 * 100
    is 57. Every comparison of a decision is of this difference with 0.
    """
    difference = np.asarray(np.subtract(value, other, dtype=np.float64))
    room = _TIE * np.minimum(size, np.finfo(np.float64).max)  # an infinite one is not equal to others
    difference[np.abs(difference) <= room] = 0.0
    return difference


def _over_units(reduce: Callable[..., Any]) -> Callable[[FloatArray], FloatArray]:
    def of(values: FloatArray) -> FloatArray:
        return np.broadcast_to(reduce(values, axis=-1, keepdims=True), np.shape(values))

    return of


def _brackets(values: FloatArray, limits: FloatArray, weights: FloatArray) -> FloatArray:
    """Sum over brackets of the part of ``values`` that lies in each times its weight; the brackets end at ``limits``,
    the last has no end."""
    ends = [0.0, *limits, np.inf]
    if len(weights) != len(ends) - 1 or list(ends) != sorted(ends):
        raise ConfigError(
            f"brackets() has {len(limits)} limits and {len(weights)} weights; give rising limits and one weight more"
        )
    found = np.zeros(np.shape(values))
    for low, high, weight in zip(ends, ends[1:], weights, strict=False):
        found = found + weight * np.clip(values - low, 0.0, high - low)
    return found


FUNCTIONS: Mapping[str, tuple[int, Callable[..., FloatArray]]] = {
    "nation": (1, _over_units(np.sum)),
    "mean": (1, _over_units(np.mean)),
    "highest": (1, _over_units(np.max)),
    "lowest": (1, _over_units(np.min)),
    "min": (2, np.minimum),
    "max": (2, np.maximum),
    "brackets": (3, _brackets),
}
"""Name -> how many arguments, and the function. The first four are over all units that are decided for: their sum
(``nation``), their mean, the highest and the lowest of them. ``brackets(x, [limits], [weights])``: `_brackets`."""


def _quotient(value: Any, base: Any, dtype: Any) -> FloatArray:
    """``value`` / ``base``, and NaN where that is 0."""
    return np.asarray(np.divide(value, np.where(np.equal(base, 0.0), np.nan, base), dtype=dtype))


_ARITHMETIC: Mapping[type[ast.operator], Callable[..., Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: _quotient,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[..., Any]] = {
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Eq: np.equal,
    ast.NotEq: lambda difference, zero: np.abs(difference) > zero,  # false for NaN
}


@dataclass(frozen=True)
class Expression:
    """A parsed expression. ``text``: as it was given; ``names``: those that it uses, in order."""

    text: str
    names: tuple[str, ...]
    _tree: ast.expr = field(repr=False, compare=False)
    _named: Mapping[str, str] = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: str) -> Expression:
        """Parse ``text``. Raises `ConfigError` that names the part that is not understood."""
        if len(text) > _LONGEST:
            raise ConfigError(f"an expression has {len(text):,} characters; give at most {_LONGEST:,}")
        quoted: dict[str, str] = {}

        def stand_in(match: re.Match[str]) -> str:
            return quoted.setdefault(match[1], f"_name_{len(quoted)}")

        plain = re.sub(r"`([^`]+)`", stand_in, text)
        try:
            tree = ast.parse(plain.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ConfigError(
                f"expression {shown(text)} cannot be read; write it like 'children >= 10 and children > 0.02 * all', "
                "with a name of several words or with signs in backquotes"
            ) from None
        named = {place: name for name, place in quoted.items()}
        found: dict[str, None] = {}
        _require_known(tree, text, named, found, 0)
        return cls(text, tuple(found), tree, named)

    def of(self, values: Mapping[str, FloatArray]) -> FloatArray:
        """Its value (..., units) for every unit. A division by 0 gives NaN; comparisons with NaN are false. Raises
        `ConfigError` for an unknown name.

        Args:
            values: by name, arrays (..., units), or of one number for all units.
        """
        for name in self.names:
            if name not in values:
                raise ConfigError(f"expression {shown(self.text)} asks for {shown(name)}; there are {listed(values)}")
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            value = np.asarray(self._value(self._tree, values), dtype=np.float64)
        return np.broadcast_to(value, _units(values))

    def _value(self, node: ast.expr, values: Mapping[str, FloatArray]) -> Any:
        def of(one: ast.expr) -> Any:
            return self._value(one, values)

        match node:
            case ast.Constant():
                return float(node.value)  # type: ignore[arg-type]
            case ast.Name():
                return values[self._named.get(node.id, node.id)]
            case ast.List():
                return np.array([of(one) for one in node.elts])
            case ast.UnaryOp():
                operand = of(node.operand)
                if isinstance(node.op, ast.Not):
                    return ~np.asarray(operand, dtype=bool)
                return np.negative(operand, dtype=np.float64)
            case ast.BinOp():
                return _ARITHMETIC[type(node.op)](of(node.left), of(node.right), dtype=np.float64)
            case ast.BoolOp():
                combine = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
                return combine.reduce(
                    [np.asarray(one, dtype=bool) for one in np.broadcast_arrays(*map(of, node.values))]
                )
            case ast.Compare():
                sides = [(of(one), self._size(one, values)) for one in (node.left, *node.comparators)]
                held = [
                    _COMPARISONS[type(op)](apart(a, b, p + q), 0.0)
                    for op, (a, p), (b, q) in zip(node.ops, sides, sides[1:], strict=False)
                ]
                return np.logical_and.reduce(np.broadcast_arrays(*held))
            case ast.IfExp():
                return np.where(of(node.test), of(node.body), of(node.orelse))
            case ast.Call(func=ast.Name(id=name), args=[first, *others]):
                return FUNCTIONS[name][1](np.broadcast_to(of(first), _units(values)), *map(of, others))
        raise AssertionError(node)  # parse() lets nothing else through

    def _size(self, node: ast.expr, values: Mapping[str, FloatArray]) -> Any:
        """How large the numbers are whose rounding is in the value of ``node``: of a - b as of a + b, since nothing but
        their rounding may be left."""
        match node:
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
                return self._size(left, values) + self._size(right, values)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return self._size(left, values) * self._size(right, values)
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return self._size(left, values) / np.abs(self._value(right, values))
        return np.abs(self._value(node, values), dtype=np.float64)


def _units(values: Mapping[str, FloatArray]) -> tuple[int, ...]:
    """The shape (..., units) of what ``values`` are for."""
    return np.broadcast_shapes(*(np.shape(one) for one in values.values()))


def _numbers(lists: Sequence[ast.expr], text: str) -> list[ast.expr]:
    """The numbers in ``lists``, the limits and the weights of brackets(). Raises `ConfigError` for anything else."""
    found = [one for several in lists if isinstance(several, ast.List) for one in several.elts]
    named = any(isinstance(part, ast.Name) for one in found for part in ast.walk(one))
    if named or not all(isinstance(one, ast.List) for one in lists):
        raise ConfigError(
            f"expression {shown(text)}: the limits and the weights of brackets() are lists of numbers, such as "
            "brackets(x, [10, 20], [1, 2, 3])"
        )
    return found


def _require_known(node: ast.expr, text: str, named: Mapping[str, str], found: dict[str, None], deep: int) -> None:
    """Refuse everything that `Expression._value` cannot compute; collect the names."""
    if deep > _DEEPEST:
        raise ConfigError(f"expression {shown(text)} has more than {_DEEPEST} nested operations")
    parts: list[ast.expr] = []
    match node:
        case ast.Constant(value=value) if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"expression {shown(text)} has {shown(str(value))}, which is no number and no name")
        case ast.Constant(value=int() | float() as value) if not abs(value) <= sys.float_info.max:
            raise ConfigError(
                f"expression {shown(text)} has a number that is too large to compute with; give numbers up to 1e308"
            )
        case ast.Constant():
            pass
        case ast.Name(id=name):
            found.setdefault(named.get(name, name))
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            parts = [operand]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            parts = [left, right]
        case ast.BoolOp(values=several):
            parts = several
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARISONS for op in ops):
            parts = [left, *others]
        case ast.IfExp(test=test, body=body, orelse=orelse):
            parts = [test, body, orelse]
        case ast.List():
            raise ConfigError(
                f"expression {shown(text)} has the list {shown(ast.unparse(node))}; only brackets(x, [limits], "
                "[weights]) takes lists"
            )
        case ast.Call(func=ast.Name(id=name), args=several, keywords=[]) if name in FUNCTIONS:
            if len(several) != FUNCTIONS[name][0]:
                raise ConfigError(f"expression {shown(text)}: {name}() takes {FUNCTIONS[name][0]} values")
            parts = several[:1] + _numbers(several[1:], text) if name == "brackets" else several
        case ast.Call():
            raise ConfigError(f"expression {shown(text)} calls an unknown function; there are {listed(FUNCTIONS)}")
        case _:
            raise ConfigError(
                f"expression {shown(text)} has {shown(ast.unparse(node))}, which is not understood; there are + - * /, "
                f"comparisons, and, or, not, 'a if b else c' and {listed(FUNCTIONS)}"
            )
    for part in parts:
        _require_known(part, text, named, found, deep + 1)
