"""One HTML page of a release, from its public directory alone; for a large release an index and a page for every unit
of the first level below the root.

It opens without a network and computes margins of error of sums itself (``sums.js``).
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from topdown.analysis.outlines import outline_files, outlines_in
from topdown.analysis.page.page_numbers import PageNumbers, in_pieces, nodes_of_page
from topdown.errors import ConfigError
from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray
from topdown.geography.unit_sums import NOWHERE, SpineGeography
from topdown.machine.files import file_digest, make_folder, whole_file, whole_folder
from topdown.machine.software import version_of
from topdown.pages.chart_style import styled, told
from topdown.pages.leaf_outlines import Outlines, drawable, read_outlines
from topdown.pages.outline_file import outlines_of
from topdown.pages.shell import filled, packed
from topdown.release.places import MANIFEST, beside, require_outside_releases
from topdown.release.published import PublishedRelease, read_release
from topdown.release.readme import LANGUAGES, protection
from topdown.tables.assignments import Assignment, areas_of
from topdown.tables.count_reliability import CLASSES
from topdown.tables.readers import require_encodable
from topdown.tables.tidy import named_failures, write_text
from topdown.uncertainty.margin_words import statement
from topdown.wording import listed, shown, shown_path

FILE = "page.html"
_INDEX = "index.html"
_PACKAGE = "topdown.analysis.page"
_OWN = ("release_page.css", "release_page.js", "sums.js")
_WORDS = LANGUAGES["en"]
_MARK = re.compile(r'<meta name="made-from" content="(\w+)">')
_LONGEST_HEAD = 1 << 11


class PageOptions(NamedTuple):
    """The options of a page: outlines of the units (``geometry``), and tables of units and the districts that they are
    in (``areas``).
    """

    geometry: Path | None = None
    areas: tuple[Path, ...] = ()


_NOTHING = PageOptions()


class MadePages(NamedTuple):
    """The ``files`` that were written, one file or those of a folder, whether they were there already, and ``notes`` on
    what their reader has to know.
    """

    output: Path
    files: tuple[Path, ...]
    already_there: bool = False
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> str:
        """How many files and bytes were written, in words."""
        size = sum(path.stat().st_size for path in self.files)
        return f"{len(self.files):,} {'file' if len(self.files) == 1 else 'files'}, {size:,} bytes"


class _Given(NamedTuple):
    """What the files of the options hold for a geography."""

    outlines: Outlines | None
    areas: Sequence[Assignment]


def require_page(geography: Geography, options: PageOptions) -> _Given:
    """Read the files of ``options`` for ``geography``. Raises `ConfigError` and `DataError` for outlines of which none
    belongs to a unit, and for areas of units that do not exist.
    """
    outlines = None if options.geometry is None else _outlines(options.geometry, geography)
    return _Given(outlines, areas_of(options.areas, geography))


def _outlines(path: Path, geography: Geography) -> Outlines:
    if path.suffix.lower() in (".geojson", ".json", ".topojson"):
        return read_outlines(path, geography, "geometry")
    found = outlines_in(path)
    in_degrees = found if found.crs is None else found.to_crs(4326)
    return drawable(
        outlines_of(json.loads(in_degrees.to_json(drop_id=True)), path, "geometry"), path, geography, "geometry"
    )


def write_page(public: str | Path, output: str | Path | None = None, options: PageOptions = _NOTHING) -> MadePages:
    """Write the page of the release in the directory ``public`` to ``output``, by default page.html beside it.

    A release of more units and counts than one page can hold becomes a folder with the file's name without its suffix:
    an index and a page for every unit of the first level below the root. Where the same pages exist already nothing is
    written. Raises `ConfigError` where something else exists there, and as `require_page` does, `DataError` for a
    release that is damaged.
    """
    folder = Path(public)
    found = read_release(folder)
    target = require_encodable(beside(folder) / FILE if output is None else Path(output))
    require_outside_releases(target)
    given, numbers = require_page(found.geography, options), PageNumbers.of(found)
    given = given._replace(areas=[*_released(found), *given.areas])
    pieces = in_pieces(found.geography, numbers.tables)
    target = target.with_suffix("") if pieces else target
    mark = _mark(folder, options)
    if _there(target, mark):
        return MadePages(target, (), True)
    notes = () if given.outlines is None else tuple(_without_outline(found.geography, given.outlines))
    made = _Maker(folder, numbers, given, mark)
    with named_failures(target):
        make_folder(target.parent)
        if not pieces:
            with whole_file(target) as partial:
                write_text(partial, made.page(nodes_of_page(found.geography)))
            return MadePages(target, (target,), notes=notes)
        with whole_folder(target) as staging:
            names = made.pages(staging)
        return MadePages(target, tuple(target / name for name in names), notes=notes)


def _without_outline(geography: Geography, outlines: Outlines) -> Iterator[str]:
    """A sentence on the leaves that are not on the map, if any."""
    missing = np.setdiff1d(np.arange(geography.n_leaves), outlines.leaves)
    if len(missing):
        first = geography.identifiers[geography.tree.leaves.start + int(missing[0])].as_py()
        yield (
            f"{len(missing):,} of {geography.n_leaves:,} units of level {shown(geography.levels[-1])} have no outline "
            f"with an area and are not on the map, such as {shown(first)}"
        )


def _released(found: PublishedRelease) -> Iterator[Assignment]:
    """The areas that a release has itself, by kind."""
    measured, lowest = found.measurements.geography, found.geography.levels[-1]
    for kind, whole in measured.areas.items() if isinstance(measured, SpineGeography) else ():
        nodes = found.geography.index_of(whole.identifiers.slice(whole.tree.leaves.start))
        ends = whole.tree.child_offsets[2:-1] - whole.tree.leaves.start
        areas = dict(zip(whole.geoid[whole.tree.level(1)].tolist(), np.split(nodes, ends), strict=True))
        outside = areas.pop(NOWHERE, np.empty(0, np.int64))
        yield Assignment(kind, lowest, tuple(areas), tuple(areas.values()), outside, 0)


def _mark(public: Path, options: PageOptions) -> str:
    """A code of everything that a page is made from: the release, the options, and the software."""
    outlines = [] if options.geometry is None else outline_files(options.geometry)
    digests = [file_digest(path) for path in (public / MANIFEST, *outlines, *options.areas)]
    return hashlib.sha256(
        "\n".join([version_of(), *digests, *(path.name for path in options.areas)]).encode()
    ).hexdigest()


def _there(target: Path, mark: str) -> bool:
    """Whether this page exists at ``target``. Raises `ConfigError` where anything else does."""
    if not target.exists():
        return False
    page = target / _INDEX if target.is_dir() else target
    with named_failures(page, "correct the permissions"):
        if target.is_dir() and not any(target.iterdir()):
            return False
        known = None
        if page.is_file():
            with page.open("rb") as file:
                known = _MARK.search(file.read(_LONGEST_HEAD).decode(errors="replace"))
    if known is None or known[1] != mark:
        raise ConfigError(f"{shown_path(target)} exists already and is not this page; move it away")
    return True


class _Maker:
    """Makes the pages of one release, which have most of their text in common."""

    def __init__(self, public: Path, numbers: PageNumbers, given: _Given, mark: str) -> None:
        self.numbers, self.given, self.mark = numbers, given, mark
        self.digest = file_digest(public / MANIFEST)

    def pages(self, folder: Path) -> list[str]:
        """Write the index and a page per unit of the first level into ``folder``; returns the names of the files."""
        geography = self.numbers.geography
        names, links = [_INDEX], []
        of_first_level = geography.tree.level(1)
        for number, node in enumerate(range(of_first_level.start, of_first_level.stop), 1):
            name = f"{number:0{len(str(of_first_level.stop))}d}.html"
            write_text(folder / name, self.page(nodes_of_page(geography, node), part=_called(geography, node)))
            names.append(name)
            links.append({"href": name, "text": _called(geography, node)})
        upper = nodes_of_page(geography)[:2]
        write_text(folder / _INDEX, self.page(upper, index=links))
        return names

    def page(self, nodes: list[IntArray], *, part: str = "", index: Sequence[Mapping[str, str]] | None = None) -> str:
        """The page of ``nodes``, by level: of all, of a ``part`` of the release, or its ``index``."""
        numbers, found = self.numbers, self.numbers.found
        manifest, every = found.manifest, np.concatenate(nodes)
        data = numbers.of_page(nodes)
        data["outlines"] = self._outlines_of(every)
        outlines = self.given.outlines
        data["charts"] = {"map": _map(outlines.projection)} if outlines is not None and data["outlines"] else {}
        data["areas"] = self._areas_of(every)
        told = manifest["configuration"].get("catalogue", {})
        reason = numbers.reason
        return filled(
            "release_page.html.jinja",
            _PACKAGE,
            own=_OWN,
            title=manifest["title"] or _WORDS.untitled,
            part=part,
            index=index or (),
            is_piece=bool(part),
            mark=self.mark,
            notices=manifest.get("notices", ()),
            about={_WORDS.about[name]: told[name] for name in _WORDS.about if told.get(name)},
            reason=reason,
            confidence=numbers.confidence,
            classes=CLASSES,
            charts=data["charts"],
            outlined=f"{len(data['outlines']):,} of {len(nodes[-1]):,} units of level {data['levels'][-1]}",
            areas=bool(data["areas"]),
            left_out=_left_out(data, is_index=index is not None),
            not_kept=found.measurements.reason_against(data["levels"]),
            read=self._read_aloud(data),
            words=_WORDS,
            protection=[_code(one) for one in protection(found.plan, _WORDS, str)],
            margins=_code(_WORDS.margins),
            choice=_code(_WORDS.choice),
            promise=None if reason else statement(numbers.confidence),
            statement=manifest["privacy"].get("statement", ""),
            software=f"Topdown {version_of()}",
            digest=self.digest,
            data=packed(data),
            table_script=_table_script(),
            table_style=_table_style(),
        )

    def _outlines_of(self, every: IntArray) -> list[dict[str, Any]]:
        """The outlines of the page's units (nodes ``every``, in order), by the unit's place on the page."""
        outlines = self.given.outlines
        if outlines is None:
            return []
        nodes = outlines.leaves + self.numbers.geography.tree.leaves.start
        places = np.searchsorted(every, nodes).clip(max=len(every) - 1)
        return [
            {"unit": int(place), "geometry": geometry}
            for place, geometry, there in zip(places, outlines.geometries, every[places] == nodes, strict=True)
            if there
        ]

    def _areas_of(self, every: IntArray) -> list[dict[str, Any]]:
        """The districts all of whose units are on the page."""
        found = []
        for area in self.given.areas:
            districts = [
                {"name": name, "units": np.searchsorted(every, nodes).tolist()}
                for name, nodes in zip(area.districts, area.nodes, strict=True)
                if np.isin(nodes, every).all()
            ]
            if districts:
                found.append({"name": area.name, "districts": districts})
        return found

    def _read_aloud(self, data: Mapping[str, Any]) -> str:
        """A sentence that explains one number of the page, if possible of a unit below the root and of a count with
        noise.
        """
        first = 1 if len(data["sizes"]) > 1 else 0
        units = range(first, first + data["sizes"][first])
        columns = [column for table in reversed(data["tables"]) for column in table["columns"]]
        noisy = ((c, i) for c in columns for i in units if c["sd"][i] and c["up"][i] is not None and c["count"][i] > 0)
        column, place = next(noisy, (columns[0], first))
        where = data["geoid"][place] if data["name"] is None else data["name"][place] or data["geoid"][place]
        count, down, up = (column[name][place] for name in ("count", "down", "up"))
        named = {"place": where, "cell": column["label"], "value": f"{count:,}"}
        if down is None or up is None:
            return _WORDS.no_margin.format(**named).replace("**", "")
        ends = {"lower": f"{count - down:,.0f}", "upper": f"{count + up:,.0f}"}
        confidence = f"{100 * self.numbers.confidence:.6g}"
        return _WORDS.read.format(**named, **ends, confidence=confidence).replace("**", "")


def _called(geography: Geography, node: int) -> str:
    """A unit's name and code."""
    code = str(geography.identifiers[node].as_py())
    name = None if geography.names is None else geography.names[node].as_py()
    return f"{name} ({code})" if name else code


def _left_out(data: Mapping[str, Any], *, is_index: bool) -> str:
    """A sentence on what the page has no room for; empty where it shows everything. The levels that an index lacks are
    on its pages.
    """
    said = []
    if data["left_out_tables"]:
        said.append(f"the tables {listed(data['left_out_tables'])}")
    if data["left_out_levels"] and not is_index:
        said.append(f"the levels {listed(data['left_out_levels'])}")
    if not said:
        return ""
    return f"Too large for this page: {' and '.join(said)}. They are in the release's files; topdown query gives sums."


def _code(text: str) -> Markup:
    """A sentence of Markdown as HTML: what is between backticks is code."""
    pieces = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if k % 2 else Markup("{}").format(piece)
        for k, piece in enumerate(pieces)
    )


def _map(projection: str) -> dict[str, Any]:
    """The map: every unit with an outline in the colour of its count's class, pale where the reliability is medium. The
    script sets the classes' colours, since the reader may choose another count.
    """
    import altair as alt

    chart = (
        alt.Chart(alt.NamedData("outlines"))
        .mark_geoshape()
        .encode(
            color=alt.Color(
                "class:N", title="released count", sort=None, legend=alt.Legend(orient="bottom", columns=3)
            ),
            fillOpacity=alt.condition("datum.reliability == 'medium'", alt.value(0.5), alt.value(1.0)),
            stroke=alt.condition("datum.chosen", alt.value("#d1490c"), alt.value("#7d838c")),
            strokeWidth=alt.condition("datum.chosen", alt.value(2.5), alt.value(0.25)),
            tooltip=told("code:N", "name:N", "count:Q", "interval:N", "reliability:N"),
        )
        .project(type=projection)
        .properties(width=900, height=520)
    )
    return styled(chart, "Map of the released count of every unit, with its reliability")


@functools.cache
def _table_script() -> Markup:
    """DataTables and jQuery from the package itables: one module, whose jQuery the page uses."""
    script = (files("itables") / "html" / "dt_bundle.js").read_text(encoding="utf-8").replace("</script", "<\\/script")
    exported = re.search(r"export\{[^}]*?\b(\w+) as jQuery\b[^}]*\};", script)
    if exported is None:
        raise ConfigError("the installed version of itables is not supported; install itables 2.9")
    called = f"window.jQuery={exported[1]};"
    return Markup(script[: exported.start()] + called + script[exported.end() :])  # nosec B704 # itables' own script


@functools.cache
def _table_style() -> Markup:
    style = (files("itables") / "html" / "dt_bundle.css").read_text(encoding="utf-8").replace("</style", "<\\/style")
    return Markup(style)  # nosec B704 # itables' own style
