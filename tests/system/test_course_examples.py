"""The Python blocks of the documentation run, and print what the page says."""

from __future__ import annotations

import contextlib
import io
import re
from typing import Any

import pytest

from support.places import REPOSITORY

DOCS = REPOSITORY / "docs"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[tuple[str, str | None]]:
    """Every Python block of a page with the text block right after it, if there is one."""
    found = [(kind, body) for kind, body in BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))]
    following = [*found[1:], ("", "")]
    return [
        (body, after if after_kind == "text" else None)
        for (kind, body), (after_kind, after) in zip(found, following, strict=True)
        if kind == "python"
    ]


def printed(code: str, names: dict[str, Any]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "a block of the page", "exec"), names)
    return out.getvalue()


@pytest.mark.parametrize("page", ["course_examples.md", "bounded_noise.md"])
def test_a_page_prints_what_it_says(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    names: dict[str, Any] = {}
    found = blocks(page)
    assert found
    for code, expected in found:
        out = printed(code, names)
        assert expected is not None, f"no output is shown below:\n{code}"
        assert [line.rstrip() for line in out.splitlines()] == expected.splitlines(), code
        assert out


def test_the_blocks_of_the_tutorial_run() -> None:
    import topdown as td

    geography = td.Geography.from_edges(["US", "a", "b"], ["", "US", "US"])
    names: dict[str, Any] = {"td": td, "geography": geography, "values": [10.0, 4.0, 7.0], "variance": [1.0, 2.0]}
    names |= {"blocks": {"geoid": ["010010201001000", "010010201001001"]}}
    names |= {"table": {"geoid": ["010010201001001"], "people": [3]}}
    for code, _ in blocks("tutorial.md"):
        exec(compile(code, "tutorial.md", "exec"), names)
    assert names["counts"].values[-2:, 0].tolist() == [0, 3]
    assert names["estimate"].values[0] == pytest.approx(names["estimate"].values[1:].sum())
