"""README.md of a release, in plain words and two pages at most: who publishes what, how a number is read, which number
to use, what is protected. METHODS.md has the rest.

It is in the language that `[output] language` asks for; names and texts of the publisher stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topdown.machine.software import version_of
from topdown.privacy.plan import Plan
from topdown.release.answer_files import AREAS, FOLDER, paths_of
from topdown.release.catalogue import CROISSANT, CSVW, DCAT
from topdown.release.manifest import Description
from topdown.release.partition import RELEASE
from topdown.release.places import MANIFEST
from topdown.tables.output_formats import names_of
from topdown.tables.parquet_folder import parts_of
from topdown.wording import escaped

README, METHODS, DATAPACKAGE = "README.md", "METHODS.md", "datapackage.json"

_ROWS_LOOKED_AT = 1 << 14
"""So many rows are searched for a number as an example."""


@dataclass(frozen=True)
class Words:
    """The sentences of a language, with placeholders in braces; ``thousands``: the separator of thousands in
    numbers.
    """

    thousands: str
    untitled: str
    not_stated: str
    about: Mapping[str, str]
    """The labels of the settings in [catalogue]."""
    reading: str
    read: str
    no_margin: str
    margins: str
    files: str
    file: str
    what: Mapping[str, str]
    """A description of every file."""
    tables: str
    areas: str
    choosing: str
    choice: str
    protection: str
    noise: str
    budget: str
    nothing_exact: str
    exact: str
    plan_unknown: str
    more: str
    rest: str


_FILES = ("release", "release_wide", "estimates", "measurements", "geography", "limits")
"""The tables in the order in which they are described."""

LANGUAGES: dict[str, Words] = {
    "en": Words(
        thousands=",",
        untitled="A release of counts",
        not_stated="not stated",
        about={
            "publisher": "Publisher", "licence": "Licence", "period": "Time counted", "description": "What it is",
            "date": "Published on", "contact": "Questions to", "url": "Address",
        },
        reading="How to read a number",
        read="{place}, {cell}: the released count is **{value}**, and with {confidence} % confidence the true count is "
        "between **{lower}** and **{upper}**.",
        no_margin="{place}, {cell}: the released count is **{value}**; no margin of error is stated beside it.",
        margins="Random noise was added to every number, so that each has a margin of error. Margins of several units "
        "must not be added up: `topdown query` gives those of sums, differences and shares.",
        files="The files",
        file="file",
        what={
            "release": "the release: whole counts, 0 or more, that add up from the smallest units to the largest",
            "release_wide": "the release with a row per unit",
            "estimates": "estimates by least squares over all levels, which may be negative, with their variances",
            "measurements": "the measurements, which are counts with noise",
            "geography": "every unit, the unit that it lies in, and its name",
            "limits": "public limits of counts",
        },
        tables="tables with a row per unit: {names}",
        areas="areas that are not units of a level, one row each, with margins of error: {names}",
        choosing="Which number to use",
        choice="For one unit, the release. For sums over many small units, the estimates by least squares: the "
        "release is 0 or more everywhere, so small units are raised on average, and their sums more so. GEOIDs "
        "are text: keep their leading zeros.",
        protection="What is protected",
        noise="Each {unit}: the noise limits how much the publication can reveal about any one of them, "
        "whatever else somebody knows (differential privacy).",
        budget="The limit on what it reveals: {budget}; a smaller number protects more.",
        nothing_exact="No count is published exactly.",
        exact="Published exactly, and not protected: {names}.",
        plan_unknown="Each person or other unit that was counted, by differential privacy; the plan of the noise is "
        "not known here.",
        more="More",
        rest="`{methods}` explains every column, how margins of error are made, and the law of the noise. "
        "`{manifest}` has all settings and the SHA-256 of every file; `{package}`, `{csvw}`, `{dcat}` and "
"`{croissant}` "
        "are for programs. Made by Topdown {version}; `topdown verify` checks that nothing was changed.",
    ),
    "fr": Words(
        thousands="\u202f",
        untitled="Une diffusion de comptages",
        not_stated="non précisé",
        about={
            "publisher": "Producteur", "licence": "Licence", "period": "Période comptée", "description": "Description",
            "date": "Date de publication", "contact": "Contact", "url": "Adresse",
        },
        reading="Comment lire un nombre",
        read="{place}, {cell} : le nombre diffusé est **{value}** et, avec une confiance de {confidence} %, le vrai "
        "nombre se trouve entre **{lower}** et **{upper}**.",
        no_margin="{place}, {cell} : le nombre diffusé est **{value}** ; aucune marge d'erreur n'est indiquée.",
        margins="Un bruit aléatoire a été ajouté à chaque nombre, qui a donc une marge d'erreur. Les marges de "
        "plusieurs "
        "unités ne s'additionnent pas : `topdown query` donne celles des sommes, des différences et des parts.",
        files="Les fichiers",
        file="fichier",
        what={
            "release": "la diffusion : des nombres entiers, positifs ou nuls, qui s'additionnent des plus petites "
            "unités aux plus grandes",
            "release_wide": "la diffusion, une ligne par unité",
            "estimates": "des estimations par moindres carrés, parfois négatives, avec leurs variances",
            "measurements": "ce qui a été mesuré, avec son bruit",
            "geography": "chaque unité, celle qui la contient et son nom",
            "limits": "des bornes connues de tous",
        },
        tables="des tableaux, une ligne par unité : {names}",
        areas="des zones qui ne sont unités d'aucun niveau, une ligne par zone, avec leurs marges d'erreur : {names}",
        choosing="Quel nombre prendre",
        choice="Pour une unité, la diffusion. Pour des sommes de nombreuses petites unités, les estimations par "
        "moindres carrés : "
        "la diffusion n'est jamais négative, et ce qui a été relevé à 0 s'accumule. Les codes (GEOID) sont du texte : "
        "leurs zéros initiaux en font partie.",
        protection="Ce qui est protégé",
        noise="Chaque unité comptée ({unit}) : le bruit borne ce que la publication peut apprendre sur chacune d'entre "
        "elles, quoi que l'on sache par ailleurs (confidentialité différentielle).",
        budget="La borne de ce qui est révélé : {budget} ; plus elle est petite, plus la protection est forte.",
        nothing_exact="Aucun nombre n'est publié exactement.",
        exact="Publiés exactement, et non protégés : {names}.",
        plan_unknown="Chaque personne ou autre unité comptée, par la confidentialité différentielle ; le plan du bruit "
        "n'est pas connu ici.",
        more="En savoir plus",
        rest="`{methods}` (en anglais) explique chaque colonne, le calcul des marges d'erreur et la loi du bruit. "
        "`{manifest}` contient tous les réglages et le SHA-256 de chaque fichier ; `{package}`, `{csvw}`, `{dcat}` et "
        "`{croissant}` sont destinés aux programmes. Produit par Topdown {version} ; `topdown verify` vérifie que rien "
        "n'a été modifié.",
    ),
    "es": Words(
        thousands=".",
        untitled="Una publicación de recuentos",
        not_stated="no indicado",
        about={
            "publisher": "Editor", "licence": "Licencia", "period": "Período contado", "description": "Descripción",
            "date": "Fecha de publicación", "contact": "Contacto", "url": "Dirección",
        },
        reading="Cómo leer un número",
        read="{place}, {cell}: el número publicado es **{value}** y, con una confianza del {confidence} %, el número "
        "verdadero está entre **{lower}** y **{upper}**.",
        no_margin="{place}, {cell}: el número publicado es **{value}**; no se indica ningún margen de error.",
        margins="A cada número se le añadió ruido aleatorio, por lo que cada uno tiene un margen de error. Los "
        "márgenes "
        "de varias unidades no se suman: `topdown query` da los de sumas, diferencias y proporciones.",
        files="Los archivos",
        file="archivo",
        what={
            "release": "la publicación: números enteros, de 0 en adelante, que suman desde las unidades más pequeñas "
            "hasta las más grandes",
            "release_wide": "la publicación con una fila por unidad",
            "estimates": "estimaciones por mínimos cuadrados, que pueden ser negativas, con sus varianzas",
            "measurements": "lo que se midió, con su ruido",
            "geography": "cada unidad, la que la contiene y su nombre",
            "limits": "límites que todos conocían",
        },
        tables="tablas con una fila por unidad: {names}",
        areas="zonas que no son unidades de ningún nivel, una fila por zona, con sus márgenes de error: {names}",
        choosing="Qué número tomar",
        choice="Para una unidad, la publicación. Para sumas de muchas unidades pequeñas, las estimaciones por "
        "mínimos cuadrados: la "
        "publicación nunca es negativa, y lo que se elevó a 0 se acumula. Los códigos (GEOID) son texto: sus ceros "
        "iniciales les pertenecen.",
        protection="Qué está protegido",
        noise="Cada unidad contada ({unit}): el ruido acota lo que la publicación puede revelar de cada una de ellas, "
        "sepa lo que sepa quien la lea (privacidad diferencial).",
        budget="La cota de lo que revela: {budget}; cuanto menor, mayor es la protección.",
        nothing_exact="Ningún número se publica exactamente.",
        exact="Publicados exactamente, y no protegidos: {names}.",
        plan_unknown="Cada persona u otra unidad contada, por privacidad diferencial; aquí no se conoce el plan del "
        "ruido.",
        more="Más información",
        rest="`{methods}` (en inglés) explica cada columna, cómo se calculan los márgenes de error y la ley del ruido. "
        "`{manifest}` tiene todos los ajustes y el SHA-256 de cada archivo; `{package}`, `{csvw}`, `{dcat}` y "
        "`{croissant}` son para programas. Hecho con Topdown {version}; `topdown verify` comprueba que nada cambió.",
    ),
    "pt": Words(
        thousands=".",
        untitled="Uma divulgação de contagens",
        not_stated="não indicado",
        about={
            "publisher": "Responsável", "licence": "Licença", "period": "Período contado", "description": "Descrição",
            "date": "Data de publicação", "contact": "Contato", "url": "Endereço",
        },
        reading="Como ler um número",
        read="{place}, {cell}: o número divulgado é **{value}** e, com {confidence} % de confiança, o número "
        "verdadeiro "
        "está entre **{lower}** e **{upper}**.",
        no_margin="{place}, {cell}: o número divulgado é **{value}**; não há margem de erro indicada.",
        margins="A cada número foi acrescentado ruído aleatório, e por isso cada um tem uma margem de erro. As "
        "margens de "
        "várias unidades não se somam: `topdown query` dá as de somas, diferenças e proporções.",
        files="Os arquivos",
        file="arquivo",
        what={
            "release": "a divulgação: números inteiros, de 0 em diante, que somam das unidades menores às maiores",
            "release_wide": "a divulgação com uma linha por unidade",
            "estimates": "estimativas por mínimos quadrados, que podem ser negativas, com as suas variâncias",
            "measurements": "o que foi medido, com o seu ruído",
            "geography": "cada unidade, a que a contém e o seu nome",
            "limits": "limites que todos conheciam",
        },
        tables="tabelas com uma linha por unidade: {names}",
        areas="áreas que não são unidades de nenhum nível, uma linha por área, com as suas margens de erro: {names}",
        choosing="Que número usar",
        choice="Para uma unidade, a divulgação. Para somas de muitas unidades pequenas, as estimativas por mínimos "
        "quadrados: a "
        "divulgação nunca é negativa, e o que foi elevado a 0 acumula-se. Os códigos (GEOID) são texto: os zeros "
        "iniciais fazem parte deles.",
        protection="O que está protegido",
        noise="Cada unidade contada ({unit}): o ruído limita o que a divulgação pode revelar sobre cada uma delas, "
        "seja "
        "o que for que se saiba além disso (privacidade diferencial).",
        budget="O limite do que revela: {budget}; quanto menor, maior é a proteção.",
        nothing_exact="Nenhum número é publicado exatamente.",
        exact="Publicados exatamente, e não protegidos: {names}.",
        plan_unknown="Cada pessoa ou outra unidade contada, por privacidade diferencial; o plano do ruído não é "
        "conhecido "
        "aqui.",
        more="Mais informações",
        rest="`{methods}` (em inglês) explica cada coluna, como se fazem as margens de erro e a lei do ruído. "
        "`{manifest}` tem todas as configurações e o SHA-256 de cada arquivo; `{package}`, `{csvw}`, `{dcat}` e "
        "`{croissant}` são para programas. Feito com Topdown {version}; `topdown verify` verifica que nada foi "
        "alterado.",
    ),
}  # fmt: skip
"""Every language by its code."""


class _Number(NamedTuple):
    """A released number as an example, its ends missing where it has no margin."""

    place: str
    cell: str
    value: int
    lower: float | None
    upper: float | None


def plain(text: str) -> str:
    """Text of the configuration or a name, escaped so that Markdown shows it unchanged."""
    return "".join(f"\\{sign}" if sign in "\\`*_[]<>#|" else sign for sign in escaped(text))


def in_plain_words(about: Description, files: Mapping[str, Path]) -> str:
    """README.md of the release that ``about`` describes, whose tables are ``files`` by name."""
    words = LANGUAGES[about.config.output.language]
    told = {"title": about.config.title, **about.config.catalogue.model_dump()}
    number = _read_aloud(about, files)
    confidence = about.margins["confidence"]
    lines = [f"# {plain(told['title']) or words.untitled}", ""]
    lines += [f"**{plain(notice)}**\n" for notice in about.origin.notices]
    lines += ["| | |", "|---|---|"]
    lines += [f"| {said} | {in_cell(told[name]) or words.not_stated} |" for name, said in words.about.items()]
    kept = bool(about.measurements.keys)
    lines += ["", f"## {words.reading}", ""] if kept or number is not None else [""]
    if number is not None:
        sentence = words.no_margin if number.lower is None or confidence is None else words.read
        figures = {
            name: f"{int(one):,}".replace(",", words.thousands)
            for name, one in (("value", number.value), ("lower", number.lower), ("upper", number.upper))
            if one is not None
        }
        shown_confidence = "" if confidence is None else f"{100.0 * confidence:.6g}"
        names = {"place": plain(number.place), "cell": plain(number.cell), "confidence": shown_confidence}
        lines += [f"> {sentence.format(**names, **figures)}", ""]
    lines += [words.margins, ""] if kept else []
    lines += [f"## {words.files}", "", f"| {words.file} | |", "|---|---|"]
    for name in _FILES:
        there = [f"`{one}`" for one in names_of(name) if one in files]
        if there:
            lines.append(f"| {', '.join(there)} | {words.what[name]} |")
    if about.tables:
        called = ", ".join(plain(table.name) for table in about.tables)
        lines.append(f"| `{FOLDER}/` | {words.tables.format(names=called)} |")
    if about.areas:
        called = ", ".join(plain(one.kind) for one in about.areas)
        lines.append(f"| `{AREAS}/` | {words.areas.format(names=called)} |")
    # Without measurements there are neither margins of error nor estimates to choose from.
    lines += ["", f"## {words.choosing}", "", words.choice] if kept else []
    lines += [
        "",
        f"## {words.protection}",
        "",
        "\n\n".join(protection(about.plan, words)),
    ]
    rest = words.rest.format(
        methods=METHODS, manifest=MANIFEST, package=DATAPACKAGE, csvw=CSVW, dcat=DCAT, croissant=CROISSANT,
        version=version_of(),
    )  # fmt: skip
    lines += ["", f"## {words.more}", "", rest]
    return "\n".join(lines) + "\n"


def in_cell(text: str) -> str:
    """`plain` text for the cell of a table, on one line."""
    return plain(text).replace("\n", " ")


def protection(plan: Plan | None, words: Words, quoted: Callable[[str], str] = plain) -> list[str]:
    """What is protected, and by how much, in sentences; ``quoted``: how names are written in them."""
    if plan is None:
        return [words.plan_unknown]
    exact = [*plan.invariants, *(f"{query} ({level})" for level, query in plan.exact_queries)]
    said = words.exact.format(names=", ".join(map(quoted, exact))) if exact else words.nothing_exact
    budget = f"{plan.noise.currency} = {float(plan.charged_total):.6g}"
    if plan.delta:
        budget += f", delta = {float(plan.delta):.6g}"
    return [words.noise.format(unit=quoted(plan.unit)), f"{words.budget.format(budget=budget)} {said}"]


def _read_aloud(about: Description, files: Mapping[str, Path]) -> _Number | None:
    """A number of the release as an example, if possible of a unit below the root: of a cell, or of a table's
    column.
    """
    estimates = [names_of(paths_of(table)[1])[0] for table in about.tables]
    found = [files[name] for name in (*estimates, RELEASE) if name in files]
    geography = about.measurements.published
    level = geography.levels[min(1, len(geography.levels) - 1)]
    for path in found:
        schema = pq.read_schema(parts_of(path)[0])
        column = "column" if "column" in schema.names else "cell"
        if column not in schema.names or "value" not in schema.names:
            continue
        wanted = [one for one in ("geoid", "level", "name", column, "value", "lower", "upper") if one in schema.names]
        with pq.ParquetFile(parts_of(path)[0]) as file:
            rows = next(file.iter_batches(_ROWS_LOOKED_AT, columns=wanted), None)
        if rows is None or not rows.num_rows:
            continue
        there = np.asarray(pc.equal(rows["level"].cast("string"), level)) & (np.asarray(rows["value"]) > 0)
        place = int(np.argmax(there))
        row = rows.slice(place, 1).to_pylist()[0]
        ends = [row.get(end) for end in ("lower", "upper")]
        bounded = all(one is not None and np.isfinite(one) for one in ends)
        return _Number(row.get("name") or row["geoid"], row[column], row["value"], *(ends if bounded else (None, None)))
    return None
