"""The meaning of words in names of columns, in languages in which tables of counts are often published.

Words are only one of several kinds of evidence: what the values are, and how columns depend on each other, comes first.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from functools import cache

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MEASURE = _words(
    """
    area surface superficie superfice flache flaeche km2 sqkm sqmi km ha hectare hectares hectareas acre acres
    aland awater density densite densidad densidade densita dichte perc pct percent percentage pourcentage
    porcentaje percentagem prozent anteil share part prop proportion rate taux tasa taxa tasso quote ratio
    index indice mean median average avg moyenne media mediana mittel income inc inctot incwage hhincome
    ftotinc los charge charges revenu ingreso renda einkommen gdp pib bip price prix rent wage salary lat
    latitude lon lng longitude xcoord ycoord coord elevation altitude altitud hohe height length leng
    perimeter perimetre perimetro umfang rank rang rango ranking score lwr upr moe se sd cv stderr weight
    perwt pwgtp wgt distance temp temperature growth croissance change variation turnout hdi idh gini centroid
    intptlat intptlon margin error life expectancy yield decile quintile quantile percentile vigintile cost costs amount
    increase balance saldo solde net difference zuwachs crecimiento
    """
)
"""Words for quantities that are no numbers of records."""

_MEASURE_BEGINS = ("perc", "pct", "prop", "dens", "avg", "median", "shape", "wgt", "percent", "area")
_MEASURE_ENDS = (
    "density",
    "dichte",
    "densidad",
    "flache",
    "flaeche",
    "area",
    "pct",
    "perc",
    "percent",
    "rate",
    "km2",
    "quote",
    "ratio",
    "index",
    "income",
)

_IDENTIFIES = _words("code codes id ids codigo codigos cod kode")
"""Words that make a code of any other word: an area code is no area."""

WEIGHT = _words(
    """
    weight weights wgt perwt hhwt pwgtp wt peso gewicht poids factor
    """
)
YEAR = _words(
    """
    year annee ano anio jahr anno yr vintage period periode periodo ejercicio time week month quarter semana
    mes mois trimestre woche monat founded built established since fundacion baujahr
    """
)
AGE = _words(
    """
    age edad idade alter eta alder leeftijd wiek agep
    """
)
STRONG_TOTAL = _words(
    """
    total tot totals totale totaux ensemble gesamt insgesamt summe suma sum todos todas overall everybody
    everyone all both totaal razem ogolem toplam genel totpop
    """
)
POPULATION = _words(
    """
    population pop poblacion populacao popolazione einwohner bevolkerung bevoelkerung inhabitants persons
    people personas pessoas habitants habitantes abitanti residents poptotal pobtot nufus befolkning folketal
    ludnosc vap p1
    """
)
"""Words for everybody, often beside columns of parts."""
COUNT = _words(
    """
    count counts n number nb nombre anzahl freq frequency value obsvalue obs cases households housing
    dwellings deaths births effectif effectifs cantidad quantidade wert valor conteo size records units
    logements hogares domicilios haushalte kpi
    """
)
COUNTED = COUNT | POPULATION
"""Words for anything that is counted."""
CODE = _words(
    """
    code codes id geoid fips fipsno codigo cod kode wilayah schluessel schlussel ags ars rs nuts lau insee
    ibge istat ons gss ubigeo cve cvegeo clave gid key geo geocode geocodigo divipola dane codgeo depcom com
    muni refnis pcode cusec procom teryt sgc codegeographique geographiccode csduid dauid cduid kennziffer kn psgc lsoa
    msoa oa sa1 sa2 statefp countyfp tractce blockce geoid10 geoid20 cntyid bfs plz zip zcta postcode isocode
    iso hasc pcode uid blockid
    """
)
NAME = _words(
    """
    name nom nombre nome namn navn naam label libelle lib bezeichnung gen nam title town city place
    """
)
RECORD = _words(
    """
    person pid rid record recordid recno serial serialno index row rownum rownames fid objectid ogc oid
    unnamed persona individuo individual idind pernum respondent case caseid lfd nummer line seq sequence hhid
    personid uuid patient patientid subject participant pupil student employee victim incident offense crash
    claim application voter worker osm nro
    """
)
"""Words for numbers that only identify rows."""
CATEGORY = _words(
    """
    sex sexo sexe gender geschlecht genere race raza raca ethnicity ethnic etnia hispanic age edad idade alter
    agegroup agegrp agep marital education educ edu level niveau type typ tipo category categorie categoria
    class classe clase klasse status statut estadocivil civil metro inmetro urban rural urbanrural kind climate
    party winner relationship relation tenure occupation industry religion language incomegroup citizenship
    nationality origin birthplace size employment activity employed disability veteran group grp gq hhtype
    cause disease product sectortype sexc kon kjonn plec cinsiyet spol pohlavie variable indicator
    """
)
"""Words for attributes of records or units, not for places."""
DWELLINGS = _words(
    """
    housing household households hh dwelling dwellings homes hogares viviendas vivienda domicilios moradias agregados
    logement logements menages wohnungen haushalte hushall bostader families familias familles abitazioni famiglie
    """
)
"""Words for households, families and dwellings, which are counted beside people."""
SLICE = _words(
    """
    level sumlev summary geolevel niveau nivel ebene typ type tipo geotype rectype lvl
    """
)
"""Words for the kind of unit of a row."""
TOTAL_ROWS = _words(
    """
    total totals gesamt insgesamt ensemble totale todos all everyone total: summe _t t tot both bothsexes
    ukupno razem totaal
    """
)

_LEVELS = (
    "nation country pais paese national continent world adm0 admin0",
    "state states st stname cpro codpro stusab bundesland land province provincia provinz prov region regiao "
    "regions reg canton kanton uf admin1 adm1 governorate oblast prefecture voivodeship wojewodztwo comunidad "
    "ccaa lan fylke emirate estado entidad ent regione territory ter il adm1 kraj provinsi wilaya maakunta rgn omrade",
    "rb nuts county counties cty cnty couname comte kreis landkreis krs district distrito departamento department "
    "departement dep dept division zone admin2 adm2 powiat concelho arrondissement regierungsbezirk borough "
    "parish rayon daerah amt puma lga okres okrug kabupaten judet megye zupanija woreda amphoe lad adm2",
    "municipality cmun municipio municipalidade muni mun gemeinde commune comune town city ville village kommune "
    "kommun gmina gem subcounty subdistrict subdivision admin3 adm3 township csd lau constituency ilce localite "
    "locality upazila adm3 location site obec tehsil taluk tahsil kecamatan comuna",
    "tract vb ward wards sector setor ageb freguesia quartier neighborhood neighbourhood barrio iris section seccion "
    "suburb zip postcode plz sa2 precinct vtd loc localidad localidade kebele desa "
    "cell mukim stadtteil ortsteil msoa division_code",
    "bg blockgroup blkgrp blockgrp da sa1 lsoa enumeration ea",
    "block blk blocks manzana bloc oa meshblock building parcel",
)
LEVEL_RANK = {word: rank for rank, words in enumerate(_LEVELS) for word in words.split()}
"""The usual depth of units with such a name."""

_FOLDED = str.maketrans({"ß": "ss", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "æ": "ae", "Æ": "AE", "ı": "i", "đ": "d"})

_DISJOINT = (
    "male female m f men women man woman males females homme femme hommes femmes mann frau manner frauen hombre "
    "mujer hombres mujeres homem mulher homens mulheres masculino feminino femenino kvinnor mannen vrouwen "
    "mezczyzni kobiety maend kvinder menn miehet naiset erkek kadin laki perempuan ferfi muzi zeny barbati femei "
    "pojkar flickor dreng pige maschi femmine mannlich weiblich boys girls masculin feminin",
    "white black asian aian nhpi hispanic other native american indian african coloured caribbean amerindian "
    "pacific islander two more multi mixed race latino nonhispanic nh w b h a o amind hisp weiss none some "
    "unknown asiannhpi multiple",
    "employed unemployed inactive retired student other labor",
    "owned rented vacant occupied owner renter notstated unknown other free mortgage",
    "single married divorced widowed separated unknown never",
    "dem rep democrat republican democratic gop lib green ind other blank invalid",
    "yes no abstain",
    "urban rural",
    "jan feb mar apr may jun jul aug sep oct nov dec january february march april june july august september "
    "october november december q1 q2 q3 q4",
    "refugees idps asylum seekers",
    "households institutions conventional quarters group gq",
    "primary secondary tertiary none",
    "citizen foreign foreigners deutsche auslander auslaender nationals native foreignborn",
)
DISJOINT = tuple(frozenset(words.split()) for words in _DISJOINT)
"""Sets of mutually exclusive words."""


@cache
def names_total(value: str) -> bool:
    """Whether a value is the name of a row that is a total."""
    return "".join(words_of(value)) in TOTAL_ROWS or value.lower() in TOTAL_ROWS


def words_of(name: str) -> tuple[str, ...]:
    """The words in a column's name in lower case, without accents: "Total_Pop2010" is total, pop and 2010."""
    folded = name.translate(_FOLDED)
    plain = "".join(c for c in unicodedata.normalize("NFKD", folded) if not unicodedata.combining(c))
    return tuple(part.lower() for part in _PARTS.findall(plain))


def says(name: str, words: frozenset[str]) -> bool:
    """Whether the column's ``name`` has one of ``words``, also where it is written as two words."""
    parts = words_of(name)
    whole = "".join(parts)
    letters = whole.rstrip("0123456789")
    joined = {a + b for a, b in itertools.pairwise(parts)}
    ending = words is NAME and letters.endswith(("name", "nm"))  # COUNAME, LAD22NM
    return ending or bool(words & ({*parts, whole, letters} | joined))


def is_measure(name: str) -> bool:
    """Whether ``name`` is of areas, percentages, densities and the like, and not of their codes."""
    parts = [part for part in words_of(name) if not part.isdigit()]
    return not says(name, _IDENTIFIES) and (
        "%" in name
        or "²" in name
        or says(name, MEASURE)
        or any((p.startswith(_MEASURE_BEGINS) and len(p) > 4) or p.endswith(_MEASURE_ENDS) for p in parts)
    )


def level_rank(name: str) -> int | None:
    """The usual depth of the units in a column of this ``name``; None where the name does not show it."""
    parts = [part for part in words_of(name) if not part.isdigit()]
    whole = "".join(parts)
    if whole in CATEGORY:
        return None  # estado civil is no state
    numbered = [a + b for a, b in itertools.pairwise(words_of(name)) if b.isdigit()]  # adm1, sa2
    found = [LEVEL_RANK[part] for part in (*parts, whole, *numbered) if part in LEVEL_RANK]
    if "block" in parts and "group" in parts:
        return 5
    if not found:
        found = [rank for word, rank in LEVEL_RANK.items() if len(word) > 4 and whole.startswith(word)]
    return max(found, default=None)
