"""An HTML page that needs no network: its template, what all pages include, its data, and Vega's scripts."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import vl_convert
from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

_INCLUDED = ("style.css", "draw.js", "csv.js")
"""What every page may include: the common style, and the scripts that draw charts and save tables."""

_SCRIPT = re.compile(r'<script(?: type="module")?>(.*?)</script>', re.DOTALL)

_ALLOWED = re.compile(r"script-src (?:'sha256-[^']+' )*")
"""Where a page's security policy names the scripts that may run."""


def filled(
    page: str,
    package: str,
    *,
    own: Sequence[str] = (),
    templates: Mapping[str, str] = {},
    filters: Mapping[str, Callable[..., Any]] = {},
    **values: Any,
) -> str:
    """The template ``page`` of ``package`` with ``values``, and Vega's scripts as ``vega``.

    ``own``: files of the package that it may include, ``templates``: further ones, besides style and scripts. Names and
    labels are escaped everywhere.
    """
    known = {name: _text("topdown.pages", name) for name in _INCLUDED}
    known |= {name: _text(package, name) for name in (page, *own)}
    environment = _environment(tuple({**templates, **known}.items()), tuple(filters.items()))
    return with_policy(environment.get_template(page).render(vega=vega(), **values))


@functools.lru_cache(maxsize=8)
def _environment(
    templates: tuple[tuple[str, str], ...], filters: tuple[tuple[str, Callable[..., Any]], ...]
) -> Environment:
    """What compiles ``templates``, name and text, once for all pages of them."""
    environment = Environment(
        loader=DictLoader(dict(templates)),
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= dict(filters)
    return environment


def with_policy(page: str) -> str:
    """``page`` with a security policy by which only its own scripts run: whatever markup a name holds, and whichever
    library takes it for markup, no script of it runs.
    """
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in _SCRIPT.findall(page)]
    allowed = "".join(f"'sha256-{digest}' " for digest in digests)
    return _ALLOWED.sub(f"script-src {allowed}", page, count=1)


def _text(package: str, name: str) -> str:
    return (files(package) / name).read_text(encoding="utf-8")


def embedded(value: Any) -> Markup:
    """``value`` as JSON that is safe inside a script element: no character of it can end the element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # nosec B704 # what could end the script element was escaped above


def packed(value: Any) -> Markup:
    """``value`` as compressed JSON in base64, which draw.js decodes; it has only letters, digits, + / and =."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(base64.b64encode(zlib.compress(text.encode(), 9)).decode())  # nosec B704 # base64 ends no element


@functools.cache
def vega() -> Markup:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script")
    # In a function of its own, so that its names are not visible to the page.
    return Markup(f"(() => {{{bundle}}})();")  # nosec B704 # vl-convert's own script, no input of ours
