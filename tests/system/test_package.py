"""The package as a whole: nothing in it is unused, and what has one meaning stands in one place."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from support.places import REPOSITORY
from topdown.privacy.mechanism import MECHANISMS
from topdown.projection.method import METHODS
from topdown.projection.rounding_method import ROUNDINGS
from topdown.studies.methods import names as method_labels

MODULES = sorted((REPOSITORY / "topdown").rglob("*.py"))


def top_level_names(module: Path) -> set[str]:
    """The functions, classes and constants that a module defines, dunders apart."""
    found = set()
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.decorator_list:
            found.add(node.name)
    return {name for name in found if not name.startswith("__")}


def test_every_private_name_and_constant_is_used() -> None:
    words: Counter[str] = Counter()
    for module in MODULES:
        words.update(re.findall(r"\w+", module.read_text(encoding="utf-8")))
    named = {(module.stem, name) for module in MODULES for name in top_level_names(module)}
    inner = {(module, name) for module, name in named if name.startswith("_") or name.isupper()}
    assert len(inner) > 200
    assert {f"{module}.{name}" for module, name in inner if words[name] < 2} == set()


# -- what has one meaning stands in one place -------------------------------------------------------------------------


def places(found: Callable[[ast.AST], bool]) -> list[str]:
    """The modules in which a node of the syntax tree is what is looked for, once for every such node."""
    return [
        module.relative_to(REPOSITORY).as_posix()
        for module in MODULES
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if found(node)
    ]


def is_power(node: ast.AST) -> bool:
    """2**53 in one of its forms."""
    forms = {"2 ** 53", "2.0 ** 53", "1 << 53"}
    return isinstance(node, ast.BinOp) and ast.unparse(node) in forms


def test_the_largest_whole_number_stands_once() -> None:
    assert places(is_power) == ["topdown/noise/exact_numbers.py"]


def test_the_hint_of_the_nearest_name_stands_once() -> None:
    called = places(lambda node: isinstance(node, ast.Call) and ast.unparse(node.func).endswith("get_close_matches"))
    assert called == ["topdown/errors.py"]


def test_the_kinds_of_neighbours_stand_once() -> None:
    def names_them(node: ast.AST) -> bool:
        inner = node.keys if isinstance(node, ast.Dict) else [node.slice] if isinstance(node, ast.Subscript) else []
        return any("'substitute'" in ast.unparse(one) for one in inner if one is not None)

    assert set(places(names_them)) == {"topdown/neighbours.py"}


def test_the_variance_of_a_family_stands_once() -> None:
    def one_minus_one_by_n(node: ast.AST) -> bool:
        return isinstance(node, ast.BinOp) and ast.unparse(node) in ("1.0 - 1.0 / n", "1.0 - 1.0 / self.n")

    # Beside it the kurtosis of the same law, and the limit of a distance, which are no variances.
    assert places(one_minus_one_by_n).count("topdown/projection/linear/linear_covariance.py") == 1
    assert set(places(one_minus_one_by_n)) == {
        "topdown/projection/linear/linear_covariance.py",
        "topdown/research/theory/projected_laplace.py",
        "topdown/research/sections/wasserstein_curve.py",
    }
    assert places(one_minus_one_by_n).count("topdown/research/theory/projected_laplace.py") == 1


def test_a_table_of_names_has_one_meaning() -> None:
    """METHODS are the projections, wherever it is read."""
    homes: dict[str, set[str]] = {}
    for module in MODULES:
        for node in ast.parse(module.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(
                node.value, ast.Dict | ast.DictComp | ast.Tuple
            ):
                target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                if isinstance(target, ast.Name) and target.id.isupper() and not target.id.startswith("_"):
                    homes.setdefault(target.id, set()).add(module.relative_to(REPOSITORY).as_posix())
    assert homes["METHODS"] == {"topdown/projection/method.py"}
    assert {name: sorted(found) for name, found in homes.items() if len(found) > 1} == {}


# -- names become values in a registry, and are compared nowhere else -------------------------------------------------

# The formulas of the theory, and the scales of truncated noise, are of a law that is named like a mechanism.
OF_LAWS = {"topdown/research/theory/", "topdown/research/bounded/calibration.py"}


def compared_with_names(tree: ast.AST, names: set[str]) -> list[str]:
    """Comparisons (==, !=, in, match) with one of ``names`` in a syntax tree."""
    found = []
    for node in ast.walk(tree):
        parts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        parts += (
            [node.pattern.value]
            if isinstance(node, ast.match_case) and isinstance(node.pattern, ast.MatchValue)
            else []
        )
        inner = [one for part in parts for one in ast.walk(part) if isinstance(one, ast.Constant)]
        found += [one.value for one in inner if one.value in names]
    return found


def test_comparisons_with_names_are_found() -> None:
    names = {"gls", "joint"}
    text = 'a == "gls"; b in ("joint", "x"); "gls" != c; d["gls"]; f("joint")\nmatch e:\n    case "gls": pass'
    assert compared_with_names(ast.parse(text), names) == ["gls", "joint", "gls", "gls"]


def test_no_name_of_a_method_mechanism_or_rounding_is_compared_with() -> None:
    names = {*METHODS, *MECHANISMS, *ROUNDINGS, *method_labels()}
    assert {"gls", "geometric", "family", "raw"} <= names
    compared = {
        module.relative_to(REPOSITORY).as_posix(): found
        for module in MODULES
        if (found := compared_with_names(ast.parse(module.read_text(encoding="utf-8")), names))
    }
    assert {place: found for place, found in compared.items() if not place.startswith(tuple(OF_LAWS))} == {}
