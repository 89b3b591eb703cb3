"""Tables of many shapes, made after published ones, with what `topdown init` should take them for.

What is expected was written down before a table was tried. Every table is made by a few lines, with counts from a
seeded generator; `SMALL` tables in data/ are cut from real ones.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

Maker = Callable[[np.random.Generator], "pd.DataFrame | str | bytes"]


@dataclass(frozen=True)
class Case:
    """A table, written to a file that ends in ``ending`` by ``how``, and what is right for it.

    ``root``: the root's level and what identifies it, where they are looked at. ``asks``: the topics that must be
    asked. ``may_ask``: those that may be asked too. ``refused``: what the message says where the layout cannot be read.
    ``unread``: what is said where the table cannot be read as it was taken, until who was asked has answered.
    """

    name: str
    make: Maker
    ending: str = ".csv"
    how: dict[str, Any] = field(default_factory=dict)
    rows: str = "leaves"
    levels: Sequence[str] = ()
    widths: dict[str, int] = field(default_factory=dict)
    root: tuple[str, str] | None = None
    geoid: str | None = None
    cells: Sequence[str] = ()
    attributes: Sequence[str] = ()
    count: str | None = None
    separator: str | None = None
    where: dict[str, str] = field(default_factory=dict)
    leave_out: dict[str, list[str]] = field(default_factory=dict)
    pad_zeros: dict[str, int] = field(default_factory=dict)
    form: dict[str, Any] = field(default_factory=dict)
    names: dict[str, str] | str | None = None
    asks: Iterable[str] = ()
    may_ask: Iterable[str] = ()
    refused: str = ""
    unread: str = ""

    def write(self, folder: Path) -> Path:
        """The table as a file in ``folder``."""
        path = folder / f"table{self.ending}"
        made = self.make(np.random.default_rng(7))
        if isinstance(made, str):
            made = made.encode(self.how.get("encoding", "utf-8"))
        if isinstance(made, bytes):
            path.write_bytes(gzip.compress(made) if self.ending.endswith(".gz") else made)
        elif self.ending == ".parquet":
            made.to_parquet(path)
        elif self.ending == ".xlsx":
            made.to_excel(path, index=False, **self.how)
        else:
            made.to_csv(path, index=False, **self.how)
        return path


def sizes(rng: np.random.Generator, n: int, *shares: float, scale: float = 3000.0) -> list[np.ndarray]:
    """Counts of so many units, of lognormal size, in several cells."""
    total = rng.lognormal(np.log(scale), 0.9, n)
    return [rng.poisson(total * share) for share in shares]


def marked(values: Iterable[int], sign: str) -> list[str]:
    return [f"{value:,}".replace(",", sign) for value in values]


NAMES = [
    a + b
    for a in (
        "Al",
        "Ber",
        "Cor",
        "Dun",
        "Es",
        "Fal",
        "Gor",
        "Hul",
        "Il",
        "Jes",
        "Kar",
        "Lom",
        "Mor",
        "Nor",
        "Ol",
        "Per",
    )
    for b in ("den", "field", "ham", "stead", "ton", "wick", "ford", "by")
]


def ontario(rng: np.random.Generator) -> str:
    codes = [f"35{d:02d}{s:03d}" for d in (1, 2, 6, 18) for s in range(1, 26, 2)]
    men, women = sizes(rng, len(codes), 0.49, 0.51)
    area = rng.uniform(20, 900, len(codes))
    lines = ["Code géographique;Nom;Province;Population totale, 2021;Hommes;Femmes;Superficie (km²);Densité"]
    for k, code in enumerate(codes):
        total = men[k] + women[k]
        lines.append(
            f"{code};Ville é{k};Ontario;{total};{men[k]};{women[k]};{area[k]:.2f};{total / area[k]:.1f}".replace(
                ".", ","
            )
        )
    return "\r\n".join(lines) + "\r\n"


def county_codes(states: Sequence[str] = ("01", "02", "17", "48"), n: int = 15) -> list[str]:
    return [f"{state}{2 * k + 1:03d}" for state in states for k in range(n)]


def us_counties(rng: np.random.Generator) -> pd.DataFrame:
    codes = county_codes()
    states = {"01": "Alabama", "02": "Alaska", "17": "Illinois", "48": "Texas"}
    return pd.DataFrame(
        {
            "geoid": codes,
            "STATEFP": [c[:2] for c in codes],
            "COUNTYFP": [c[2:] for c in codes],
            "COUNAME": [NAMES[k % 40] for k in range(60)],
            "STNAME": [states[c[:2]] for c in codes],
            "POPULATION": sizes(rng, 60, 1)[0],
        }
    )


def midwest(rng: np.random.Generator) -> pd.DataFrame:
    states = [s for s in ("IL", "IN", "MI", "OH", "WI") for _ in range(20)]
    races = sizes(rng, 100, 0.8, 0.1, 0.02, 0.03, 0.05, scale=30000)
    total = np.sum(races, axis=0)
    area = rng.uniform(0.02, 0.1, 100).round(3)
    known = (total * 0.97).astype(int)
    frame = {
        "PID": np.arange(561, 661),
        "county": [NAMES[k % 71].upper() for k in range(100)],
        "state": states,
        "area": area,
        "poptotal": total,
        "popdensity": (total / area).round(4),
    }
    kinds = ("white", "black", "amerindian", "asian", "other")
    frame |= {f"pop{kind}": one for kind, one in zip(kinds, races, strict=True)}
    frame |= {f"perc{kind}": (100 * one / total).round(5) for kind, one in zip(kinds, races, strict=True)}
    frame |= {
        "popadults": (total * rng.uniform(0.6, 0.7, 100)).astype(int),
        "perchsd": rng.uniform(50, 90, 100).round(4),
        "poppovertyknown": known,
        "percbelowpoverty": rng.uniform(2, 30, 100).round(4),
        "inmetro": rng.integers(0, 2, 100),
        "category": rng.choice(["AAR", "LHR", "HAR", "AAU"], 100),
    }
    return pd.DataFrame(frame)


def nc_sids(rng: np.random.Generator) -> pd.DataFrame:
    births = sizes(rng, 100, 1.0, scale=2000)[0] + 200
    later = (births * 1.2).astype(int)
    return pd.DataFrame(
        {
            "AREA": rng.uniform(0.04, 0.24, 100).round(3),
            "PERIMETER": rng.uniform(1, 3, 100).round(3),
            "CNTY_": rng.permutation(np.arange(1825, 1925)),
            "CNTY_ID": rng.permutation(np.arange(1825, 1925)),
            "NAME": NAMES[:100],
            "FIPS": [f"37{2 * k + 1:03d}" for k in range(100)],
            "FIPSNO": [37001 + 2 * k for k in range(100)],
            "CRESS_ID": np.arange(1, 101),
            "BIR74": births,
            "SID74": rng.binomial(births, 0.002),
            "NWBIR74": rng.binomial(births, 0.3),
            "BIR79": later,
            "SID79": rng.binomial(later, 0.002),
            "NWBIR79": rng.binomial(later, 0.3),
        }
    )


IBGE = [f"{uf}{k:05d}" for uf in (11, 21, 35, 53) for k in range(15, 400, 20)]
AGES = ("0_4", "5_9", "10_14", "15_19", "20_24", "25_29", "30_39", "40_49", "50_59", "60_69", "70_plus")


def brazil(rng: np.random.Generator) -> pd.DataFrame:
    n = len(IBGE)
    ufs = {"11": "RO", "21": "MA", "35": "SP", "53": "DF"}
    cells = {f"{sex}_{age}": sizes(rng, n, 0.05)[0] for sex in ("homens", "mulheres") for age in AGES}
    return pd.DataFrame(
        {"cod_municipio": IBGE, "nome": [f"M {k}" for k in range(n)], "uf": [ufs[c[:2]] for c in IBGE], **cells}
    )


def brazil_132(rng: np.random.Generator) -> pd.DataFrame:
    ages = [f"{a}_{a + 4}" for a in range(0, 105, 5)] + ["105_plus"]
    races = ("branca", "preta", "amarela")
    names = [f"{sex}_{race}_{age}" for sex in "mf" for race in races for age in ages]
    return pd.DataFrame({"ibge": IBGE} | {name: rng.poisson(30, len(IBGE)) for name in names})


B132 = [
    f"{sex}_{race}_{age}"
    for sex in "mf"
    for race in ("branca", "preta", "amarela")
    for age in [*(f"{a}_{a + 4}" for a in range(0, 105, 5)), "105_plus"]
]


def insee(rng: np.random.Generator) -> pd.DataFrame:
    deps = {"01": "84", "13": "93", "2A": "94", "2B": "94", "69": "84", "83": "93"}
    codes = [f"{dep}{k:03d}" for dep in deps for k in range(1, 30, 3)]
    men, women = sizes(rng, len(codes), 0.48, 0.52, scale=900)
    return pd.DataFrame(
        {
            "CODGEO": codes,
            "LIBGEO": [f"Saint-É{k}" for k in range(len(codes))],
            "DEP": [c[:2] for c in codes],
            "REG": [deps[c[:2]] for c in codes],
            "P19_POP": men + women,
            "P19_POPH": men,
            "P19_POPF": women,
        }
    )


def kreise(rng: np.random.Generator) -> str:
    codes = [f"{land:02d}{k:03d}" for land in (1, 3, 9, 14) for k in range(1, 60, 5)]
    men, women = sizes(rng, len(codes), 0.49, 0.51, scale=90000)
    rows = [f"{c};Kreis {k};{m + w};{m};{w}" for k, (c, m, w) in enumerate(zip(codes, men, women, strict=True))]
    return (
        "\n".join(
            ["Bevölkerung nach Kreisen;;;;", "Stichtag 31.12.2022;;;;", "AGS;Kreis;Insgesamt;männlich;weiblich", *rows]
        )
        + "\n"
    )


def nuts(rng: np.random.Generator) -> pd.DataFrame:
    codes = [f"{c}{a}{b}{d}" for c in ("AT", "DK", "FI") for a in (1, 2) for b in (1, 2, 3) for d in (1, 2)]
    m, f = sizes(rng, len(codes), 0.49, 0.51, scale=200000)
    return pd.DataFrame({"geo": codes, "TOTAL": m + f, "M": m, "F": f})


def lau(rng: np.random.Generator) -> pd.DataFrame:
    upper = [f"SK0{a}{b}" for a in (1, 2, 3) for b in (0, 1, 2) for _ in range(8)]
    codes = [f"SK{500011 + 37 * k}" for k in range(len(upper))]
    m, f = sizes(rng, len(codes), 0.49, 0.51, scale=2000)
    return pd.DataFrame(
        {
            "NUTS_3_CODE": upper,
            "LAU_CODE": codes,
            "LAU_NAME": [f"Obec {k}" for k in range(72)],
            "males": m,
            "females": f,
        }
    )


def blocks(rng: np.random.Generator) -> pd.DataFrame:
    codes = [
        f"44{c:03d}{t:06d}{b}{k:03d}" for c in (1, 3) for t in (10100, 10200, 30301) for b in (1, 2) for k in range(8)
    ]
    races = [rng.poisson(size, len(codes)) for size in (40, 8, 2, 5, 3)]
    names = ("white", "black", "aian", "asian", "other")
    return pd.DataFrame({"GEOID20": codes, "total": np.sum(races, axis=0)} | dict(zip(names, races, strict=True)))


def block_records(rng: np.random.Generator) -> pd.DataFrame:
    codes = blocks(rng)["GEOID20"].to_numpy()
    n = 2500
    return pd.DataFrame(
        {
            "person_id": np.arange(1, n + 1),
            "block": rng.choice(codes, n),
            "age": rng.integers(0, 96, n),
            "sex": rng.choice(["F", "M"], n),
            "race": rng.choice(["white", "black", "asian", "other"], n),
        }
    )


def pl94(rng: np.random.Generator) -> pd.DataFrame:
    codes = [f"44{c:03d}{t:06d}" for c in (1, 3, 7) for t in range(100, 2500, 150)]
    n = len(codes)
    cells = {f"P002{k:04d}": rng.poisson(300 / k, n) for k in (2, *range(5, 12))}
    not_hispanic = sum(cells[f"P002{k:04d}"] for k in range(5, 12))
    return pd.DataFrame(
        {
            "GEOID": codes,
            "NAME": [f"Tract {k}" for k in range(n)],
            "P0020001": cells["P0020002"] + not_hispanic,
            "P0020002": cells["P0020002"],
            "P0020003": not_hispanic,
            **{f"P002{k:04d}": cells[f"P002{k:04d}"] for k in range(5, 12)},
        }
    )


def votes(rng: np.random.Generator) -> pd.DataFrame:
    county = [c for c in NAMES[:6] for _ in range(12)]
    dem, rep, other = sizes(rng, 72, 0.45, 0.47, 0.08, scale=900)
    cast = dem + rep + other
    return pd.DataFrame(
        {
            "county": county,
            "precinct": [f"{c[:3].upper()}-{k:03d}" for k, c in enumerate(county)],
            "votes_dem": dem,
            "votes_rep": rep,
            "votes_other": other,
            "share_dem": (dem / cast).round(4),
            "turnout_pct": rng.uniform(40, 80, 72).round(1),
        }
    )


def repeated_names(rng: np.random.Generator) -> pd.DataFrame:
    rows = [
        (p, d) for k, p in enumerate(("North", "South", "East", "West", "Centre")) for d in NAMES[4 * k : 4 * k + 9]
    ]
    m, f = sizes(rng, len(rows), 0.5, 0.5)
    return pd.DataFrame(rows, columns=["Province", "District"]).assign(Male=m, Female=f)


def lost_zeros(rng: np.random.Generator) -> pd.DataFrame:
    codes = county_codes(("01", "06", "17", "48"))
    m, f = sizes(rng, 60, 0.49, 0.51)
    return pd.DataFrame({"fips": [int(c) for c in codes], "name": NAMES[:60], "male": m, "female": f})


def blanks_between(rng: np.random.Generator) -> pd.DataFrame:
    län = [f"{k:02d}" for k in (1, 3, 4, 14) for _ in range(10)]
    codes = [f"{lan}{80 + k % 10:02d}" for k, lan in enumerate(län)]
    m, f = sizes(rng, 40, 0.5, 0.5, scale=20000)
    return pd.DataFrame(
        {
            "Kommunkod": codes,
            "Kommun": [f"Ort {k}" for k in range(40)],
            "Män": marked(m, " "),
            "Kvinnor": marked(f, " "),
        }
    )


def long_table(rng: np.random.Generator) -> pd.DataFrame:
    rows = [(r, s, a) for r in NAMES[:12] for s in ("female", "male") for a in ("0-17", "18-64", "65+")]
    return pd.DataFrame(rows, columns=["region", "sex", "age_group"]).assign(count=rng.poisson(400, len(rows)))


def long_with_totals(rng: np.random.Generator) -> pd.DataFrame:
    cells = {(s, a): rng.poisson(900, 10) for s in "FM" for a in ("Y_LT15", "Y15-64", "Y_GE65")}
    rows = []
    for k in range(10):
        for s in ("T", "F", "M"):
            for a in ("TOTAL", "Y_LT15", "Y15-64", "Y_GE65"):
                value = sum(v[k] for (x, y), v in cells.items() if s in ("T", x) and a in ("TOTAL", y))
                rows.append((f"NL{31 + k}", s, a, 2021, value))
    return pd.DataFrame(rows, columns=["geo", "sex", "age", "TIME_PERIOD", "OBS_VALUE"])


def workbook(rng: np.random.Generator) -> pd.DataFrame:
    m, f = sizes(rng, 40, 0.5, 0.5)
    return pd.DataFrame(
        {"County": [c for c in NAMES[:4] for _ in range(10)], "Parish": NAMES[10:50], "Men": m, "Women": f}
    )


def split_codes(rng: np.random.Generator) -> pd.DataFrame:
    rows = [
        ("44", f"{c:03d}", f"{t:06d}", str(g))
        for c in (1, 3, 5)
        for t in (10100, 10200, 30301, 40000)
        for g in (1, 2, 3)
    ]
    frame = pd.DataFrame(rows, columns=["STATEFP", "COUNTYFP", "TRACTCE", "BLKGRPCE"])
    m, f = sizes(rng, len(rows), 0.5, 0.5, scale=1200)
    return frame.assign(male=m, female=f)


def coded_records(rng: np.random.Generator) -> pd.DataFrame:
    n = 3000
    province = rng.integers(1, 10, n)
    return pd.DataFrame(
        {
            "SERIAL": np.arange(100001, 100001 + n),
            "PROVINCE": province,
            "DISTRICT": 100 * province + rng.integers(1, 7, n),
            "SEX": rng.integers(1, 3, n),
            "AGE": rng.integers(0, 99, n),
            "EDUCATION": rng.integers(0, 6, n),
            "PERWT": rng.uniform(8, 12, n).round(2),
        }
    )


def panel(rng: np.random.Generator) -> pd.DataFrame:
    rows = [(r, y) for r in NAMES[:14] for y in range(2016, 2022)]
    boys, girls = sizes(rng, len(rows), 0.51, 0.49)
    return pd.DataFrame(rows, columns=["region", "year"]).assign(boys=boys, girls=girls)


def with_total_row(rng: np.random.Generator) -> pd.DataFrame:
    m, f = sizes(rng, 30, 0.5, 0.5)
    frame = pd.DataFrame({"Municipality": NAMES[:30], "Men": m, "Women": f})
    return pd.concat([frame, pd.DataFrame([("Total", m.sum(), f.sum())], columns=frame.columns)])


def root_row(rng: np.random.Generator) -> pd.DataFrame:
    m, f = sizes(rng, 30, 0.5, 0.5)
    frame = pd.DataFrame({"Canton": NAMES[:30], "Hommes": m, "Femmes": f})
    return pd.concat([pd.DataFrame([("Suisse", m.sum(), f.sum())], columns=frame.columns), frame])


def postcodes(rng: np.random.Generator) -> pd.DataFrame:
    codes = sorted(rng.choice(np.arange(1067, 99998), 60, replace=False))
    return pd.DataFrame(
        {
            "plz": [f"{c:05d}" for c in codes],
            "ort": [f"Ort {k % 50}" for k in range(60)],
            "einwohner": sizes(rng, 60, 1)[0],
            "qkm": rng.uniform(1, 90, 60).round(3),
        }
    )


def spain(rng: np.random.Generator) -> pd.DataFrame:
    rows = [(f"{p:02d}", f"{m:03d}") for p in (1, 2, 28, 50) for m in range(1, 40, 3)]
    m, f = sizes(rng, len(rows), 0.5, 0.5)
    return pd.DataFrame(rows, columns=["CPRO", "CMUN"]).assign(
        NOMBRE=[f"Villa {k}" for k in range(len(rows))], TOTAL=m + f, HOMBRES=m, MUJERES=f
    )


def italy(rng: np.random.Generator) -> pd.DataFrame:
    codes = [f"{p:03d}{c:03d}" for p in (1, 15, 58, 111) for c in range(1, 40, 3)]
    m, f = sizes(rng, len(codes), 0.49, 0.51)
    return pd.DataFrame(
        {
            "Codice Istat": codes,
            "Comune": [f"Borgo {k}" for k in range(len(codes))],
            "Maschi": m,
            "Femmine": f,
            "Totale": m + f,
        }
    )


def england(rng: np.random.Generator) -> pd.DataFrame:
    rows = [
        (f"E{100 + k:08d}", f"E01{k // 4:06d}", f"E02{k // 12:06d}", f"E07{k // 48:06d}", f"District {k // 48}")
        for k in range(96)
    ]
    m, f = sizes(rng, 96, 0.5, 0.5, scale=300)
    return pd.DataFrame(rows, columns=["OA21CD", "LSOA21CD", "MSOA21CD", "LAD22CD", "LAD22NM"]).assign(
        males=m, females=f
    )


def mexico(rng: np.random.Generator) -> pd.DataFrame:
    codes = [f"{e:02d}{m:03d}" for e in (1, 9, 20, 31) for m in range(1, 14)]
    f, m = sizes(rng, len(codes), 0.51, 0.49)
    ents = {"01": "Aguascalientes", "09": "Ciudad de México", "20": "Oaxaca", "31": "Yucatán"}
    return pd.DataFrame(
        {
            "CVEGEO": codes,
            "NOM_ENT": [ents[c[:2]] for c in codes],
            "NOM_MUN": [f"San {k}" for k in range(len(codes))],
            "POBTOT": m + f,
            "POBFEM": f,
            "POBMAS": m,
        }
    )


def canada_da(rng: np.random.Generator) -> pd.DataFrame:
    codes = [f"35{d:02d}{k:04d}" for d in (6, 18, 20) for k in range(100, 118)]
    m, f = sizes(rng, len(codes), 0.5, 0.5, scale=500)
    return pd.DataFrame({"DAUID": codes, "total": m + f, "men": m, "women": f})


def australia(rng: np.random.Generator) -> pd.DataFrame:
    codes = [f"{s}{a:02d}{b:02d}{k:04d}" for s in (1, 2) for a in (1, 2) for b in (1, 2, 3) for k in range(1001, 1007)]
    m, f = sizes(rng, len(codes), 0.5, 0.5, scale=9000)
    return pd.DataFrame(
        {
            "SA2_MAINCODE_2016": codes,
            "SA2_NAME_2016": [f"Suburb {k}" for k in range(len(codes))],
            "Tot_P_M": m,
            "Tot_P_F": f,
            "Tot_P_P": m + f,
        }
    )


def india(rng: np.random.Generator) -> pd.DataFrame:
    rows = [
        (s, f"{s[:2]}-{d}", f"{s[:2]}-{d}-{t}") for s in ("Kerala", "Goa", "Bihar") for d in "abcd" for t in range(5)
    ]
    m, f = sizes(rng, len(rows), 0.51, 0.49, scale=9000)
    return pd.DataFrame(rows, columns=["State", "District", "Subdistrict"]).assign(
        Households=(m + f) // 5, Persons=m + f, Males=m, Females=f
    )


def age_groups(rng: np.random.Generator) -> pd.DataFrame:
    a, b, c = sizes(rng, 50, 0.2, 0.6, 0.2)
    return pd.DataFrame({"county": NAMES[:50], "0-14": a, "15-64": b, "65+": c, "All ages": a + b + c})


def two_divisions(rng: np.random.Generator) -> pd.DataFrame:
    a, b, c, d = sizes(rng, 60, 0.1, 0.4, 0.12, 0.38)
    return pd.DataFrame(
        {
            "ward": [f"W{k:03d}" for k in range(60)],
            "total": a + b + c + d,
            "male": a + b,
            "female": c + d,
            "minors": a + c,
            "adults": b + d,
        }
    )


def persons_and_homes(rng: np.random.Generator) -> pd.DataFrame:
    people = sizes(rng, 60, 1)[0]
    return pd.DataFrame(
        {"geoid": county_codes(), "name": NAMES[:60], "population": people, "housing_units": (people / 2.3).astype(int)}
    )


def regions_apart(rng: np.random.Generator) -> pd.DataFrame:
    frame = us_counties(rng).drop(columns=["STATEFP", "COUNTYFP", "geoid"])
    frame["region"] = frame["STNAME"].map(
        {"Alabama": "South", "Alaska": "West", "Illinois": "Midwest", "Texas": "South"}
    )
    frame["county_code"] = county_codes()
    return frame.sample(frac=1, random_state=3)[["county_code", "COUNAME", "STNAME", "region", "POPULATION"]]


def switzerland(rng: np.random.Generator) -> pd.DataFrame:
    numbers = sorted(rng.choice(np.arange(1, 6810), 60, replace=False))
    swiss, foreign = sizes(rng, 60, 0.75, 0.25)
    return pd.DataFrame(
        {
            "BFS-Nr": numbers,
            "Gemeinde": [f"Dorf {k}" for k in range(60)],
            "Kanton": [c for c in ("ZH", "BE", "GR", "VS") for _ in range(15)],
            "Schweizer": marked(swiss, "'"),
            "Ausländer": marked(foreign, "'"),
            "Total": marked(swiss + foreign, "'"),
        }
    )


def netherlands(rng: np.random.Generator) -> pd.DataFrame:
    m, f = sizes(rng, 40, 0.5, 0.5)
    return pd.DataFrame(
        {"RegioS": [f"GM{3 + 41 * k:04d}" for k in range(40)], "Gemeentenaam": NAMES[:40], "Mannen": m, "Vrouwen": f}
    )


def survey_records(rng: np.random.Generator) -> pd.DataFrame:
    n = 900
    return pd.DataFrame(
        {
            "district": rng.choice(NAMES[:15], n),
            "sex": rng.choice(["man", "woman"], n),
            "education": rng.choice(["none", "primary", "higher"], n),
            "employed": rng.choice(["yes", "no"], n),
        }
    )


def household_records(rng: np.random.Generator) -> pd.DataFrame:
    n = 1500
    ward = rng.integers(0, 40, n)
    return pd.DataFrame(
        {
            "hh_id": [f"H{k:05d}" for k in range(n)],
            "district": [f"D{w // 8}" for w in ward],
            "ward": [f"D{w // 8}-W{w:02d}" for w in ward],
            "size": rng.integers(1, 8, n),
            "tenure": rng.choice(["owned", "rented"], n),
            "income": rng.lognormal(10, 1, n).round(2),
        }
    )


def integer_codes(rng: np.random.Generator) -> pd.DataFrame:
    m, f = sizes(rng, 60, 0.5, 0.5)
    return pd.DataFrame({"FIPS": [int(c) for c in county_codes()], "men": m, "women": f})


def whole_measures(rng: np.random.Generator) -> pd.DataFrame:
    m, f = sizes(rng, 40, 0.5, 0.5)
    return pd.DataFrame(
        {
            "commune": NAMES[:40],
            "altitude": rng.integers(20, 2400, 40),
            "superficie_ha": rng.integers(200, 9000, 40),
            "hommes": m,
            "femmes": f,
        }
    )


def decimal_commas(rng: np.random.Generator) -> str:
    codes = [f"{d:02d}{m:03d}" for d in (5, 8, 11, 76) for m in range(1, 40, 3)]
    m, f = sizes(rng, len(codes), 0.5, 0.5)
    rows = [f"{c};Pueblo {k};{a},0;{b},0" for k, (c, a, b) in enumerate(zip(codes, m, f, strict=True))]
    return "\n".join(["Código DANE;Municipio;Hombres;Mujeres", *rows]) + "\n"


def summary_levels(rng: np.random.Generator) -> pd.DataFrame:
    codes = county_codes()
    m, f = sizes(rng, 60, 0.5, 0.5)
    low = pd.DataFrame({"SUMLEV": "050", "GEOID": codes, "NAME": NAMES[:60], "male": m, "female": f})
    high = low.groupby(low["GEOID"].str[:2], as_index=False)[["male", "female"]].sum()
    high = high.assign(SUMLEV="040", GEOID=["01", "02", "17", "48"], NAME=["Alabama", "Alaska", "Illinois", "Texas"])
    return pd.concat([high, low])[list(low)]


def two_years(rng: np.random.Generator) -> pd.DataFrame:
    people = sizes(rng, 60, 1)[0]
    return pd.DataFrame(
        {"geoid": county_codes(), "pop_2010": people, "pop_2020": (people * rng.uniform(0.8, 1.3, 60)).astype(int)}
    )


def peru(rng: np.random.Generator) -> pd.DataFrame:
    rows = [
        (f"{d:02d}{p:02d}{k:02d}", dep, f"{dep} {p}" if p > 1 else dep, f"Dist {d}{p}{k}")
        for d, dep in ((1, "AMAZONAS"), (15, "LIMA"), (21, "PUNO"))
        for p in (1, 2, 3)
        for k in range(1, 7)
    ]
    m, f = sizes(rng, len(rows), 0.5, 0.5)
    return pd.DataFrame(rows, columns=["UBIGEO", "DEPARTAMENTO", "PROVINCIA", "DISTRITO"]).assign(HOMBRES=m, MUJERES=f)


def age_rows(rng: np.random.Generator) -> pd.DataFrame:
    rows = [(s, c, a) for s, c in (("01", "001"), ("01", "003"), ("02", "013"), ("02", "016")) for a in range(1, 19)]
    return pd.DataFrame(rows, columns=["STATE", "COUNTY", "AGEGRP"]).assign(
        TOT_MALE=rng.poisson(900, 72), TOT_FEMALE=rng.poisson(900, 72)
    )


def repeated_rows(rng: np.random.Generator) -> pd.DataFrame:
    n = 600
    return pd.DataFrame(
        {
            "ward": rng.choice([f"W{k:02d}" for k in range(12)], n),
            "disease": rng.choice(["flu", "measles"], n),
            "cases": rng.poisson(3, n) + 1,
        }
    )


def block_groups(rng: np.random.Generator) -> pd.DataFrame:
    codes = [f"05001480{t}{g}" for t in range(100, 115) for g in (1, 2, 3)]
    pop = sizes(rng, len(codes), 0.7, 0.15, 0.1, 0.05, scale=1200)
    vap = [rng.binomial(one, 0.76) for one in pop]
    names = ("white", "black", "hispanic", "other")
    return pd.DataFrame(
        {
            "geoid": codes,
            "pop": sum(pop),
            **dict(zip(names, pop, strict=True)),
            "vap": sum(vap),
            **{f"{n}_vap": v for n, v in zip(names, vap, strict=True)},
        }
    )


def school_districts(rng: np.random.Generator) -> str:
    boys, girls = sizes(rng, 45, 0.51, 0.49, scale=700)
    rows = [f"{NAMES[k // 9]}|D{k:03d}|{b}|{g}" for k, (b, g) in enumerate(zip(boys, girls, strict=True))]
    return "\n".join(["state|school_district|boys|girls", *rows]) + "\n"


def one_state(rng: np.random.Generator) -> pd.DataFrame:
    m, f = sizes(rng, 40, 0.5, 0.5)
    return pd.DataFrame(
        {
            "state": "Ohio",
            "county": [NAMES[k // 4] for k in range(40)],
            "township": [f"T{k:02d}" for k in range(40)],
            "men": m,
            "women": f,
        }
    )


def rank_and_growth(rng: np.random.Generator) -> pd.DataFrame:
    people = np.sort(sizes(rng, 50, 1, scale=40000)[0])[::-1]
    return pd.DataFrame(
        {
            "Rank": np.arange(1, 51),
            "City": NAMES[:50],
            "Population": people,
            "Growth": rng.uniform(-3, 4, 50).round(1),
            "Founded": rng.integers(1600, 1950, 50),
        }
    )


US2, US3 = {"state": 2, "county": 5}, {"state": 2, "county": 5, "tract": 11}
US4 = {**US3, "block group": 12}
US5 = {**US4, "block": 15}
COUNTY5 = {level: width for level, width in US5.items() if level != "state"}
EVERY = "everything"

CASES = (
    Case(
        "ontario towns",
        ontario,
        how={"encoding": "cp1252"},
        widths={"division": 4, "subdivision": 7},
        root=("province", "35"),
        geoid="Code géographique",
        cells=["Hommes", "Femmes"],
        names="Nom",
        asks=["encoding"],
        form={"encoding": "windows-1252", "delimiter": ";", "decimal": ","},
    ),
    Case(
        "us counties",
        us_counties,
        levels=[EVERY, "STATEFP", "geoid"],
        names={"STATEFP": "STNAME", "geoid": "COUNAME"},
        cells=["POPULATION"],
    ),
    Case(
        "midwest",
        midwest,
        levels=[EVERY, "state", "county"],
        separator="/",
        cells=["popwhite", "popblack", "popamerindian", "popasian", "popother"],
        asks=["cells"],
    ),
    Case(
        "nc sids",
        nc_sids,
        widths={"county": 5},
        root=("state", "37"),
        geoid="FIPS",
        names="NAME",
        cells=["BIR74", "BIR79"],
        asks=["cells"],
    ),
    Case(
        "brazil",
        brazil,
        levels=[EVERY, "uf", "cod_municipio"],
        names={"cod_municipio": "nome"},
        cells=[f"{s}_{a}" for s in ("homens", "mulheres") for a in AGES],
    ),
    Case("brazil 132", brazil_132, widths={"state": 2, "municipality": 7}, geoid="ibge", cells=B132, may_ask=["cells"]),
    Case(
        "insee",
        insee,
        levels=[EVERY, "REG", "DEP", "CODGEO"],
        names={"CODGEO": "LIBGEO"},
        cells=["P19_POPH", "P19_POPF"],
    ),
    Case(
        "kreise",
        kreise,
        widths={"land": 2, "kreis": 5},
        geoid="AGS",
        names="Kreis",
        cells=["männlich", "weiblich"],
        form={"delimiter": ";", "header": 3},
    ),
    Case("nuts", nuts, widths={"country": 2, "nuts 1": 3, "nuts 2": 4, "nuts 3": 5}, geoid="geo", cells=["M", "F"]),
    Case(
        "lau",
        lau,
        levels=[EVERY, "NUTS_3_CODE", "LAU_CODE"],
        names={"LAU_CODE": "LAU_NAME"},
        cells=["males", "females"],
    ),
    Case(
        "blocks",
        blocks,
        widths=COUNTY5,
        root=("state", "44"),
        geoid="GEOID20",
        cells=["white", "black", "aian", "asian", "other"],
    ),
    Case(
        "block records",
        block_records,
        rows="records",
        widths=COUNTY5,
        root=("state", "44"),
        geoid="block",
        attributes=["age", "sex", "race"],
    ),
    Case(
        "pl94",
        pl94,
        widths={"county": 5, "tract": 11},
        root=("state", "44"),
        geoid="GEOID",
        names="NAME",
        cells=["P0020002", *(f"P002{k:04d}" for k in range(5, 12))],
    ),
    Case("votes", votes, levels=[EVERY, "county", "precinct"], cells=["votes_dem", "votes_rep", "votes_other"]),
    Case(
        "repeated names",
        repeated_names,
        levels=[EVERY, "Province", "District"],
        separator="/",
        cells=["Male", "Female"],
    ),
    Case(
        "lost zeros",
        lost_zeros,
        widths=US2,
        geoid="fips",
        names="name",
        cells=["male", "female"],
        pad_zeros={"fips": 5},
        asks=["pad_zeros"],
    ),
    Case(
        "blanks between",
        blanks_between,
        how={"sep": "\t"},
        ending=".tsv",
        levels=[EVERY, "Kommunkod"],
        cells=["Män", "Kvinnor"],
        form={"thousands": " "},
        may_ask=["widths"],
    ),
    Case("long", long_table, rows="long", levels=[EVERY, "region"], attributes=["sex", "age_group"], count="count"),
    Case(
        "long with totals",
        long_with_totals,
        rows="long",
        widths={"nuts 1": 3, "nuts 2": 4},
        root=("country", "NL"),
        geoid="geo",
        attributes=["sex", "age"],
        count="OBS_VALUE",
        leave_out={"sex": ["T"], "age": ["TOTAL"]},
    ),
    Case(
        "workbook",
        workbook,
        ending=".xlsx",
        how={"startrow": 3},
        levels=[EVERY, "County", "Parish"],
        cells=["Men", "Women"],
        form={"header": 4},
    ),
    Case(
        "split codes",
        split_codes,
        levels=[EVERY, "STATEFP", "COUNTYFP", "TRACTCE", "BLKGRPCE"],
        separator="",
        cells=["male", "female"],
    ),
    Case(
        "coded records",
        coded_records,
        rows="records",
        levels=[EVERY, "PROVINCE", "DISTRICT"],
        attributes=["SEX", "AGE", "EDUCATION"],
        asks=["rows"],
    ),
    Case("panel", panel, levels=[EVERY, "region"], where={"year": "2021"}, cells=["boys", "girls"], asks=["where"]),
    Case(
        "total row",
        with_total_row,
        levels=[EVERY, "Municipality"],
        leave_out={"Municipality": ["Total"]},
        cells=["Men", "Women"],
    ),
    Case("root row", root_row, levels=[EVERY, "Canton"], leave_out={"Canton": ["Suisse"]}, cells=["Hommes", "Femmes"]),
    Case("postcodes", postcodes, levels=[EVERY, "plz"], names={"plz": "ort"}, cells=["einwohner"]),
    Case(
        "spain",
        spain,
        levels=[EVERY, "CPRO", "CMUN"],
        separator="",
        names={"CMUN": "NOMBRE"},
        cells=["HOMBRES", "MUJERES"],
    ),
    Case(
        "italy",
        italy,
        widths={"province": 3, "comune": 6},
        geoid="Codice Istat",
        names="Comune",
        cells=["Maschi", "Femmine"],
    ),
    Case(
        "england",
        england,
        levels=[EVERY, "LAD22CD", "MSOA21CD", "LSOA21CD", "OA21CD"],
        names={"LAD22CD": "LAD22NM"},
        cells=["males", "females"],
    ),
    Case(
        "mexico", mexico, levels=[EVERY, "NOM_ENT", "CVEGEO"], names={"CVEGEO": "NOM_MUN"}, cells=["POBFEM", "POBMAS"]
    ),
    Case(
        "canada da",
        canada_da,
        widths={"division": 4, "area": 8},
        root=("province", "35"),
        geoid="DAUID",
        cells=["men", "women"],
    ),
    Case(
        "australia",
        australia,
        widths={"state": 1, "sa4": 3, "sa3": 5, "sa2": 9},
        geoid="SA2_MAINCODE_2016",
        names="SA2_NAME_2016",
        cells=["Tot_P_M", "Tot_P_F"],
    ),
    Case(
        "india", india, levels=[EVERY, "State", "District", "Subdistrict"], cells=["Males", "Females"], asks=["cells"]
    ),
    Case("age groups", age_groups, levels=[EVERY, "county"], cells=["0-14", "15-64", "65+"]),
    Case("two divisions", two_divisions, levels=[EVERY, "ward"], cells=["male", "female"], asks=["cells"]),
    Case(
        "persons and homes",
        persons_and_homes,
        widths=US2,
        geoid="geoid",
        names="name",
        cells=["population"],
        asks=["cells"],
    ),
    Case(
        "regions apart",
        regions_apart,
        levels=[EVERY, "region", "STNAME", "county_code"],
        names={"county_code": "COUNAME"},
        cells=["POPULATION"],
    ),
    Case(
        "switzerland",
        switzerland,
        levels=[EVERY, "Kanton", "BFS-Nr"],
        names={"BFS-Nr": "Gemeinde"},
        cells=["Schweizer", "Ausländer"],
        form={"thousands": "'"},
    ),
    Case(
        "netherlands",
        netherlands,
        levels=[EVERY, "RegioS"],
        names={"RegioS": "Gemeentenaam"},
        cells=["Mannen", "Vrouwen"],
    ),
    Case(
        "survey records",
        survey_records,
        rows="records",
        levels=[EVERY, "district"],
        attributes=["sex", "education", "employed"],
    ),
    Case(
        "household records",
        household_records,
        rows="records",
        levels=[EVERY, "district", "ward"],
        attributes=["size", "tenure"],
    ),
    Case(
        "integer codes",
        integer_codes,
        ending=".parquet",
        widths=US2,
        geoid="FIPS",
        cells=["men", "women"],
        pad_zeros={"FIPS": 5},
        asks=["pad_zeros"],
    ),
    Case("whole measures", whole_measures, levels=[EVERY, "commune"], cells=["hommes", "femmes"]),
    Case(
        "decimal commas",
        decimal_commas,
        widths={"department": 2, "municipality": 5},
        geoid="Código DANE",
        names="Municipio",
        cells=["Hombres", "Mujeres"],
        form={"delimiter": ";", "decimal": ","},
    ),
    Case(
        "summary levels",
        summary_levels,
        widths=US2,
        geoid="GEOID",
        names="NAME",
        where={"SUMLEV": "050"},
        cells=["male", "female"],
    ),
    Case("two years", two_years, widths=US2, geoid="geoid", cells=["pop_2020"], asks=["cells"]),
    Case(
        "peru",
        peru,
        levels=[EVERY, "DEPARTAMENTO", "PROVINCIA", "UBIGEO"],
        separator="/",
        names={"UBIGEO": "DISTRITO"},
        cells=["HOMBRES", "MUJERES"],
    ),
    Case("age rows", age_rows, refused="make a column for every combination"),
    Case(
        "repeated rows",
        repeated_rows,
        rows="records",
        levels=[EVERY, "ward"],
        attributes=["disease"],
        asks=["rows"],
        unread="column 'cases' holds numbers above 1",
    ),
    Case(
        "block groups",
        block_groups,
        widths={"tract": 11, "block group": 12},
        root=("county", "05001"),
        geoid="geoid",
        cells=["white", "black", "hispanic", "other"],
        asks=["cells"],
    ),
    Case(
        "school districts",
        school_districts,
        ending=".txt",
        levels=[EVERY, "state", "school_district"],
        cells=["boys", "girls"],
    ),
    Case("one state", one_state, levels=["state", "county", "township"], cells=["men", "women"]),
    Case("rank and growth", rank_and_growth, levels=[EVERY, "City"], cells=["Population"]),
)
