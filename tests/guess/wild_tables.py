"""More tables as statistical offices and others publish them, with what `topdown init` should take them for.

Written down before any of them was tried, as in `corpus`. Those under "cut from real ones" are files of data/small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from guess.corpus import EVERY, NAMES, US2, Case, county_codes, marked, sizes
from support.places import SMALL_DATA

Frame = pd.DataFrame


def by_sex(
    rng: np.random.Generator,
    columns: dict[str, Sequence[Any]],
    names: Sequence[str],
    *,
    total: str = "",
    scale: float = 3000.0,
) -> Frame:
    """Columns of units with men and women, called ``names``, and a ``total`` of both."""
    n = len(next(iter(columns.values())))
    m, f = sizes(rng, n, 0.49, 0.51, scale=scale)
    more = {total: m + f} if total else {}
    return Frame({**columns, **more, names[0]: m, names[1]: f})


def made(columns: Callable[[], dict[str, Sequence[Any]]], *names: str, **more: Any) -> Callable[..., Frame]:
    return lambda rng: by_sex(rng, columns(), names, **more)


def text(frame: Frame, sep: str = ",", above: Sequence[str] = (), below: Sequence[str] = (), end: str = "\n") -> str:
    """A frame as a file with lines ``above`` and ``below`` it."""
    return end.join([*above, frame.to_csv(index=False, sep=sep, lineterminator=end).rstrip(end), *below, ""])


def units(n: int, stem: str = "Ort") -> list[str]:
    return [f"{stem} {k}" for k in range(n)]


# -- what stands around a table ------------------------------------------------------------------------------------


def footnotes(rng: np.random.Generator) -> str:
    frame = by_sex(rng, {"Municipality": NAMES[:30]}, ("Men", "Women"))
    return text(frame, below=["", "Source: Office of Statistics, 2021", "* provisional"])


def padded_footnotes(rng: np.random.Generator) -> str:
    codes = [f"{land:02d}{k:03d}" for land in (1, 3, 9) for k in range(1, 60, 5)]
    frame = by_sex(rng, {"AGS": codes, "Kreis": units(36, "Kreis")}, ("männlich", "weiblich"), total="Insgesamt")
    return text(frame, ";", below=["__________;;;;", "(C)opyright Statistisches Bundesamt, 2023;;;;"])


def two_headers(rng: np.random.Generator) -> str:
    frame = by_sex(rng, {"Municipality": NAMES[:30]}, ("Men", "Women"))
    return text(frame, above=["Table 3. Population by sex,,", ",Population,"])


def titles_and_notes(rng: np.random.Generator) -> str:
    frame = by_sex(rng, {"Gemeinde": NAMES[:30]}, ("Männer", "Frauen"))
    return text(
        frame, "\t", above=["Bevölkerung 2022", "", "Stand: 31.12.2022"], below=["", "Quelle: Amt für Statistik"]
    )


def trailing_delimiter(rng: np.random.Generator) -> str:
    frame = by_sex(rng, {"ward": [f"W{k:02d}" for k in range(30)]}, ("men", "women"))
    return "\n".join(line + ";" for line in text(frame, ";").splitlines()) + "\n"


def index_column(rng: np.random.Generator) -> str:
    return by_sex(rng, {"ward": [f"W{k:02d}" for k in range(30)]}, ("men", "women")).to_csv()


def unicode_text(rng: np.random.Generator) -> bytes:
    frame = by_sex(rng, {"Kraj": NAMES[:4] * 8, "Obec": units(32, "Obec ě")}, ("muži", "ženy"))
    return text(frame.sort_values("Kraj", kind="stable"), "\t").encode("utf-16")


def with_bom(rng: np.random.Generator) -> bytes:
    return text(by_sex(rng, {"district": NAMES[:30]}, ("boys", "girls")), "|").encode("utf-8-sig")


def quoted_thousands(rng: np.random.Generator) -> Frame:
    m, f = sizes(rng, 40, 0.5, 0.5, scale=90000)
    return Frame({"District": NAMES[:40], "Males": marked(m, ","), "Females": marked(f, ",")})


def points_of_thousands(rng: np.random.Generator) -> str:
    m, f = sizes(rng, 40, 0.5, 0.5, scale=2000000)
    frame = Frame({"Concelho": units(40, "Vila"), "Homens": marked(m, "."), "Mulheres": marked(f, ".")})
    return text(frame, ";")


# -- suppressed, mixed ---------------------------------------------------------------------------------------------


def suppressed(sign: str) -> Callable[[np.random.Generator], Frame]:
    def make(rng: np.random.Generator) -> Frame:
        frame = by_sex(rng, {"ward": [f"W{k:02d}" for k in range(40)]}, ("men", "women"), scale=40).astype(str)
        frame.loc[[3, 17, 20], "men"] = sign
        return frame

    return make


def percent_in_brackets(rng: np.random.Generator) -> Frame:
    m, f = sizes(rng, 30, 0.5, 0.5)
    mixed = [f"{a:,} ({100 * a / (a + b):.1f}%)" for a, b in zip(m, f, strict=True)]
    return Frame({"county": NAMES[:30], "population": m + f, "males": mixed})


def counts_and_percent(rng: np.random.Generator) -> Frame:
    m, f = sizes(rng, 30, 0.5, 0.5)
    return Frame(
        {
            "Region": NAMES[:30],
            "Men": m,
            "Men %": (100 * m / (m + f)).round(1),
            "Women": f,
            "Women %": (100 * f / (m + f)).round(1),
        }
    )


def whole_percent(rng: np.random.Generator) -> Frame:
    m, f = sizes(rng, 30, 0.5, 0.5)
    share = (100 * m / (m + f)).round().astype(int)
    return Frame({"county": NAMES[:30], "male": m, "female": f, "pct_male": share, "pct_female": 100 - share})


# -- totals --------------------------------------------------------------------------------------------------------


def subtotals(rng: np.random.Generator) -> Frame:
    """Every region's row "Total" beneath its districts."""
    rows = []
    for region in NAMES[:4]:
        m, f = sizes(rng, 8, 0.5, 0.5)
        rows += [(region, f"{region} {k}", m[k], f[k]) for k in range(8)] + [(region, "Total", m.sum(), f.sum())]
    return Frame(rows, columns=["region", "district", "men", "women"])


def blank_totals(rng: np.random.Generator) -> Frame:
    """Every region's sum beneath its districts, and that of all at the end, by blanks in the columns of units."""
    frame = subtotals(rng).replace({"district": {"Total": ""}})
    top = frame[frame["district"] == ""][["men", "women"]].sum()
    return pd.concat([frame, Frame([("", "", *top)], columns=frame.columns)])


def neighbouring_blocks(rng: np.random.Generator) -> Frame:
    """All blocks of one block group, whose codes follow one another."""
    return Frame({"GEOID20": [str(440010301001000 + k) for k in range(40)], "people": sizes(rng, 40, 1)[0]})


def german_levels(rng: np.random.Generator) -> str:
    """Rows of the country, of its parts and of theirs, by codes of 2 and of 5 digits, as GENESIS writes them."""
    rows = []
    for land in ("01", "03", "09"):
        m, f = sizes(rng, 10, 0.5, 0.5, scale=90000)
        rows += [(land, f"Land {land}", m.sum(), f.sum())]
        rows += [(f"{land}{k:03d}", f"Kreis {land} {k}", m[k], f[k]) for k in range(10)]
    frame = Frame(rows, columns=["AGS", "Name", "männlich", "weiblich"])
    top = frame[frame["AGS"].str.len() == 2][["männlich", "weiblich"]].sum()
    root = Frame([("DG", "Deutschland", *top)], columns=frame.columns)
    return text(pd.concat([root, frame]), ";")


def state_rows(rng: np.random.Generator) -> Frame:
    """Counties with a row 000 of every state, as the estimates of the Census Bureau have it."""
    rows = []
    for state, name in (("01", "Alabama"), ("17", "Illinois"), ("48", "Texas")):
        people = sizes(rng, 15, 1)[0]
        rows += [("040", state, "000", name, name, people.sum())]
        rows += [("050", state, f"{2 * k + 1:03d}", name, f"{NAMES[k]} County", people[k]) for k in range(15)]
    return Frame(rows, columns=["SUMLEV", "STATE", "COUNTY", "STNAME", "CTYNAME", "POPESTIMATE2020"])


def of_which(rng: np.random.Generator) -> Frame:
    m, f = sizes(rng, 30, 0.5, 0.5)
    return Frame({"Bezirk": NAMES[:30], "Insgesamt": m + f, "darunter weiblich": f})


def total_columns(rng: np.random.Generator) -> Frame:
    cells = {(s, a): sizes(rng, 30, 0.2)[0] for s in ("Males", "Females") for a in ("0-14", "15-64", "65+")}
    frame = {"ward": [f"W{k:02d}" for k in range(30)], "Grand total": sum(cells.values())}
    for s in ("Males", "Females"):
        frame[f"{s} total"] = sum(v for (x, _), v in cells.items() if x == s)
        frame |= {f"{s} {a}": v for (x, a), v in cells.items() if x == s}
    return Frame(frame)


SEX_AGE = [f"{s} {a}" for s in ("Males", "Females") for a in ("0-14", "15-64", "65+")]


# -- codes of many countries ---------------------------------------------------------------------------------------


def votes_of_districts(rng: np.random.Generator) -> Frame:
    codes = [f"48{c:03d}{k:06d}" for c in (1, 3, 5) for k in range(1, 16)]
    a, b = sizes(rng, 45, 0.5, 0.4)
    return Frame({"VTDGEOID20": codes, "VTDNAME": units(45, "Precinct"), "VAP_white": a, "VAP_other": b})


def corsica(rng: np.random.Generator) -> Frame:
    codes = [f"{d}{k:03d}" for d in ("1", "2A", "2B", "69") for k in range(4, 40, 3)]  # zeros lost, text kept
    return by_sex(rng, {"Code commune": codes, "Commune": units(48, "Bourg")}, ("Hommes", "Femmes"))


def england_regions(rng: np.random.Generator) -> Frame:
    codes = [f"E{7 + k % 2:02d}{k:06d}".replace("E07", "E07").replace("E08", "E08") for k in range(40)]
    regions = [f"E1200000{1 + k // 8}" for k in range(40)]
    names = [("North East", "North West", "London", "South East", "Wales")[k // 8] for k in range(40)]
    return by_sex(
        rng,
        {"RGN22CD": regions, "RGN22NM": names, "LAD22CD": codes, "LAD22NM": units(40, "Borough")},
        ("Male", "Female"),
        total="All",
    )


def canada(rng: np.random.Generator) -> Frame:
    codes = [f"{p}{d:02d}{k:03d}" for p in (10, 24, 48) for d in (1, 2) for k in range(5, 60, 10)]
    provinces = {"10": "NL", "24": "QC", "48": "AB"}
    return by_sex(
        rng,
        {
            "CSDUID": codes,
            "CSDNAME": units(36, "Town"),
            "PRUID": [c[:2] for c in codes],
            "PRNAME": [provinces[c[:2]] for c in codes],
        },
        ("men", "women"),
    )


def australia_floats(rng: np.random.Generator) -> Frame:
    codes = [
        float(f"{s}{a:02d}{b:02d}{k:04d}") for s in (1, 2) for a in (1, 2) for b in (1, 2) for k in range(1001, 1006)
    ]
    return by_sex(rng, {"SA2_CODE_2021": codes}, ("Males", "Females"))


def local_government(rng: np.random.Generator) -> Frame:
    codes = [f"LGA{s}{k:04d}" for s in (1, 2, 3) for k in range(50, 1050, 100)]
    return by_sex(rng, {"LGA_CODE_2021": codes}, ("Tot_P_M", "Tot_P_F"), total="Tot_P_P")


def gemeinden(rng: np.random.Generator) -> Frame:
    codes = [int(f"{land:02d}{k:03d}{g:03d}") for land in (1, 5, 12) for k in (51, 54) for g in range(1, 9)]
    return by_sex(rng, {"AGS": codes, "Gemeinde": units(48, "Dorf")}, ("maennlich", "weiblich"), total="insgesamt")


def india(rng: np.random.Generator) -> Frame:
    rows = []
    for state in (1, 2, 3):
        for district in range(1, 9):
            code, name = f"{8 * (state - 1) + district:03d}", f"District {state}-{district}"
            urban, rural = rng.poisson(9000, 4), rng.poisson(20000, 4)
            for kind, cells in (("Total", urban + rural), ("Rural", rural), ("Urban", urban)):
                rows.append((f"{state:02d}", code, "DISTRICT", name, kind, cells[0] + cells[1], cells[0], cells[1]))
    return Frame(rows, columns=["State", "District", "Level", "Name", "TRU", "TOT_P", "TOT_M", "TOT_F"])


def sidra(rng: np.random.Generator) -> str:
    codes = [f"{uf}{k:05d}" for uf in (11, 31, 35) for k in range(15, 215, 20)]
    frame = by_sex(rng, {"Cód.": codes, "Município": units(30, "Vila")}, ("Homens", "Mulheres"), total="Total")
    above = ["Tabela 9514 - População residente, por sexo", "Variável - População residente (Pessoas)"]
    return text(frame, ";", above=above, below=["Fonte: IBGE - Censo Demográfico"])


def mexican_localities(rng: np.random.Generator) -> Frame:
    rows = []
    for entity, name in (("01", "Aguascalientes"), ("20", "Oaxaca")):
        for town in range(1, 5):
            m, f = sizes(rng, 6, 0.5, 0.5)
            rows += [
                (entity, name, f"{town:03d}", f"M {entity} {town}", f"{k + 1:04d}", f"L {k}", m[k] + f[k], m[k], f[k])
                for k in range(6)
            ]
    return Frame(rows, columns=["ENTIDAD", "NOM_ENT", "MUN", "NOM_MUN", "LOC", "NOM_LOC", "POBTOT", "POBMAS", "POBFEM"])


def philippines(digits: int) -> Callable[[np.random.Generator], Frame]:
    def make(rng: np.random.Generator) -> Frame:
        form = "{:02d}{:02d}{:02d}{:03d}" if digits == 9 else "{:02d}{:03d}{:02d}{:03d}"
        codes = [form.format(r, p, c, b) for r in (1, 4) for p in (28, 29) for c in (1, 2) for b in range(1, 9)]
        return Frame({"psgc": codes, "barangay": units(64, "Barangay"), "population": sizes(rng, 64, 1)[0]})

    return make


def japan(rng: np.random.Generator) -> Frame:
    codes = [f"{p:02d}{k:03d}" for p in (1, 13, 27) for k in range(101, 116)]
    prefectures = {"01": "北海道", "13": "東京都", "27": "大阪府"}
    return by_sex(
        rng,
        {"団体コード": codes, "都道府県名": [prefectures[c[:2]] for c in codes], "市区町村名": units(45, "市")},
        ("男", "女"),
        total="総数",
    )


def china(rng: np.random.Generator) -> Frame:
    codes = [f"{p}{a:02d}{k:02d}" for p in (11, 44) for a in (1, 3) for k in range(1, 11)]
    return by_sex(rng, {"adcode": codes, "name": units(40, "区")}, ("male", "female"))


def russia(rng: np.random.Generator) -> str:
    frame = by_sex(
        rng,
        {"Регион": [r for r in ("Москва", "Тверь", "Псков") for _ in range(10)], "Район": units(30, "Район")},
        ("Мужчины", "Женщины"),
    )
    return text(frame, ";")


def poland(rng: np.random.Generator) -> Frame:
    codes = [f"{w:02d}{p:02d}{g:02d}{t}" for w in (2, 14) for p in (1, 2, 3) for g in range(1, 7) for t in (1,)]
    return by_sex(rng, {"Kod": codes, "Nazwa": units(36, "Gmina")}, ("mężczyźni", "kobiety"), total="ogółem")


def turkey(rng: np.random.Generator) -> Frame:
    provinces = [p for p in ("Ankara", "İzmir", "Muş") for _ in range(10)]
    return by_sex(
        rng,
        {"İl": provinces, "İlçe": [f"{p} {k}" for k, p in enumerate(provinces)]},
        ("Erkek", "Kadın"),
        total="Toplam",
    )


def code_and_name(rng: np.random.Generator) -> Frame:
    codes = [f"{lan:02d}{k:02d} Ort {k}" for lan in (1, 3, 14) for k in range(80, 90)]
    return by_sex(rng, {"region": codes}, ("män", "kvinnor"))


def denmark(rng: np.random.Generator) -> str:
    rows = [
        (o, k, a)
        for o in units(12, "Kommune")
        for k in ("Mænd", "Kvinder")
        for a in ("0-17 år", "18-64 år", "65 år og derover")
    ]
    frame = Frame(rows, columns=["OMRÅDE", "KØN", "ALDER"]).assign(TID="2023K1", INDHOLD=rng.poisson(700, len(rows)))
    return text(frame, ";")


def spain_by_sex(rng: np.random.Generator) -> str:
    rows = []
    for k in range(30):
        m, f = rng.poisson(1400, 2)
        town = f"{1 + k // 10:02d}{1 + k % 10:03d} Villa {k}"
        rows += [
            (town, "Total", 2022, f"{m + f:,}".replace(",", ".")),
            (town, "Hombres", 2022, f"{m:,}".replace(",", ".")),
            (town, "Mujeres", 2022, f"{f:,}".replace(",", ".")),
        ]
    return text(Frame(rows, columns=["Municipios", "Sexo", "Periodo", "Total"]), ";")


def south_africa(rng: np.random.Generator) -> Frame:
    a, b, c, d, e = sizes(rng, 40, 0.6, 0.1, 0.05, 0.2, 0.05)
    return Frame(
        {
            "Province": [p for p in ("Gauteng", "Limpopo") for _ in range(20)],
            "Municipality": [f"Mun {k // 5}" for k in range(40)],
            "Ward_ID": [f"{79800001 + k}" for k in range(40)],
            "Black African": a,
            "Coloured": b,
            "Indian or Asian": c,
            "White": d,
            "Other": e,
        }
    )


def kenya_sexes(rng: np.random.Generator) -> Frame:
    m, f, i = sizes(rng, 40, 0.5, 0.5, 0.0005, scale=90000)
    rows = {
        "County": [c for c in ("Mombasa", "Kwale", "Kilifi", "Lamu") for _ in range(10)],
        "SubCounty": units(40, "Sub"),
    }
    return Frame({**rows, "Male": m, "Female": f, "Intersex": i, "Total": m + f + i})


def nigeria(rng: np.random.Generator) -> Frame:
    rows = [("Lagos", n) for n in ("Surulere", "Ikeja", "Epe", "Ojo")] + [
        ("Oyo", n) for n in ("Surulere", "Ido", "Iseyin")
    ]
    rows += [("Kano", n) for n in ("Bassa", "Dala", "Fagge")] + [("Plateau", n) for n in ("Bassa", "Jos North", "Wase")]
    return by_sex(rng, {"State": [r[0] for r in rows], "LGA": [r[1] for r in rows]}, ("Males", "Females"))


def springfields(rng: np.random.Generator) -> Frame:
    rows = [
        (s, c)
        for s in ("Illinois", "Ohio", "Missouri", "Oregon", "Maine")
        for c in ("Springfield", f"{s}ville", f"New {s}", "Salem")
    ]
    return Frame({"state": [r[0] for r in rows], "city": [r[1] for r in rows], "population": sizes(rng, 20, 1)[0]})


def new_zealand(rng: np.random.Generator) -> Frame:
    frame = by_sex(
        rng,
        {"SA22023_code": [f"{100100 + 100 * k}" for k in range(40)], "SA22023_name": units(40, "Bay")},
        ("male", "female"),
    ).astype(str)
    frame.loc[[2, 9], "female"] = "C"
    return frame


def eurostat(rng: np.random.Generator) -> Frame:
    rows = [
        ("A", "NR", s, g) for g in ("AT11", "AT12", "AT13", "AT21", "BE10", "BE21", "BE22", "BE23") for s in ("M", "F")
    ]
    frame = Frame(rows, columns=["freq", "unit", "sex", "geo"])
    frame.insert(0, "DATAFLOW", "ESTAT:DEMO_R_D2JAN(1.0)")
    return frame.assign(TIME_PERIOD=2022, OBS_VALUE=rng.poisson(300000, len(rows)), OBS_FLAG=None)


# -- the United States ---------------------------------------------------------------------------------------------


def acs_two_headers(rng: np.random.Generator) -> str:
    frame = Frame(
        {"GEO_ID": [f"0500000US{c}" for c in county_codes()], "NAME": [f"{NAMES[k]} County" for k in range(60)]}
    )
    for k in (2, 3):
        frame[f"B02001_00{k}E"], frame[f"B02001_00{k}M"] = rng.poisson(9000, 60), rng.poisson(200, 60)
    labels = ["Geography", "Geographic Area Name"]
    labels += [
        f"{what}!!Total:!!{race} alone" for race in ("White", "Black") for what in ("Estimate", "Margin of Error")
    ]
    lines = frame.to_csv(index=False).splitlines()
    return "\n".join([lines[0], ",".join(labels), *lines[1:]]) + "\n"


def county_and_state_in_name(rng: np.random.Generator) -> Frame:
    return Frame(
        {
            "NAME": [f"{NAMES[k]} County, Alabama" for k in range(60)],
            "state": "01",
            "county": [f"{2 * k + 1:03d}" for k in range(60)],
            "population": sizes(rng, 60, 1)[0],
        }
    )


def lodes(rng: np.random.Generator) -> Frame:
    codes = [
        int(f"44{c:03d}{t:06d}{b}{k:03d}") for c in (1, 3) for t in (10100, 10200) for b in (1, 2) for k in range(8)
    ]
    a, b, c = (rng.poisson(size, len(codes)) for size in (20, 50, 25))
    d, e, f = (rng.poisson(size, len(codes)) for size in (30, 30, 35))
    c = np.maximum(c, 0)
    e = np.maximum(a + b + c - d - f, 0)
    d = a + b + c - e - f
    return Frame(
        {
            "w_geocode": codes,
            "C000": a + b + c,
            "CA01": a,
            "CA02": b,
            "CA03": c,
            "CE01": d,
            "CE02": e,
            "CE03": f,
            "createdate": 20230321,
        }
    )


def cumulated(rng: np.random.Generator) -> Frame:
    codes = county_codes(("01", "48"), 10)
    rows = [
        (day, f"{NAMES[k]}", {"01": "Alabama", "48": "Texas"}[c[:2]], c)
        for day in ("2020-04-01", "2020-04-02", "2020-04-03")
        for k, c in enumerate(codes)
    ]
    cases = rng.poisson(90, len(rows))
    return Frame(rows, columns=["date", "county", "state", "fips"]).assign(
        cases=cases, deaths=rng.binomial(cases, 0.03)
    )


def census_extract(rng: np.random.Generator) -> Frame:
    n = 2500
    state = rng.choice([1, 2, 4], n)
    return Frame(
        {
            "YEAR": 2020,
            "SERIAL": np.arange(1, n + 1),
            "STATEFIP": state,
            "PUMA": [f"{s:02d}{p:03d}" for s, p in zip(state, rng.choice([100, 200, 300], n), strict=True)],
            "PERNUM": 1,
            "PERWT": rng.uniform(50, 150, n).round(1),
            "SEX": rng.integers(1, 3, n),
            "AGE": rng.integers(0, 91, n),
            "RACE": rng.integers(1, 10, n),
            "INCTOT": rng.integers(0, 90000, n),
        }
    )


def incidents(rng: np.random.Generator) -> Frame:
    n = 900
    district = rng.integers(1, 12, n)
    return Frame(
        {
            "case_number": [f"HZ{250000 + k}" for k in range(n)],
            "date": [f"2023-{1 + k % 12:02d}-{1 + k % 28:02d}" for k in range(n)],
            "primary_type": rng.choice(["THEFT", "BATTERY", "ASSAULT"], n),
            "arrest": rng.choice([True, False], n),
            "district": [f"D{d:02d}" for d in district],
            "latitude": rng.uniform(41, 42, n).round(6),
            "longitude": rng.uniform(-88, -87, n).round(6),
        }
    )


def precinct_results(rng: np.random.Generator) -> Frame:
    rows = [(c, f"{c[:3]}{p:02d}", who) for c in NAMES[:4] for p in range(8) for who in ("Ruiz", "Smith", "Young")]
    return Frame(rows, columns=["county", "precinct", "candidate"]).assign(
        office="Governor", votes=rng.poisson(200, len(rows))
    )


def schools(rng: np.random.Generator) -> Frame:
    m, f = sizes(rng, 60, 0.5, 0.5, scale=500)
    return Frame(
        {
            "LEAID": [f"06{k // 6:05d}" for k in range(60)],
            "NCESSCH": [f"06{k // 6:05d}{k:05d}" for k in range(60)],
            "SCH_NAME": units(60, "School"),
            "boys": m,
            "girls": f,
        }
    )


def towns_with_places(rng: np.random.Generator) -> Frame:
    return Frame(
        {
            "city": NAMES[:60],
            "lat": rng.uniform(25, 48, 60).round(4),
            "lng": rng.uniform(-120, -70, 60).round(4),
            "state_id": [s for s in ("AL", "TX", "IL") for _ in range(20)],
            "population": sizes(rng, 60, 1)[0],
            "density": rng.integers(20, 3000, 60),
            "military": False,
            "ranking": rng.integers(1, 4, 60),
            "id": [1840000000 + 17 * k for k in range(60)],
        }
    )


def columns_of_years(rng: np.random.Generator) -> Frame:
    people = sizes(rng, 30, 1)[0]
    return Frame({"Region": NAMES[:30]} | {str(y): rng.binomial(people, 0.9) for y in (2018, 2019, 2020)})


def variables_and_values(rng: np.random.Generator) -> Frame:
    rows = [(w, v) for w in [f"W{k:02d}" for k in range(20)] for v in ("men", "women", "children")]
    return Frame(rows, columns=["area", "variable"]).assign(value=rng.poisson(300, 60))


def restarting_numbers(rng: np.random.Generator) -> Frame:
    rows = [(r, d) for r in range(1, 7) for d in range(1, 9)]
    m, f = sizes(rng, 48, 0.5, 0.5)
    return Frame({"region": [r[0] for r in rows], "district": [r[1] for r in rows], "men": m, "women": f})


def birthdays(rng: np.random.Generator) -> Frame:
    n = 700
    return Frame(
        {
            "patient_id": rng.permutation(np.arange(5000, 5000 + n)),
            "birth_date": [f"{1940 + k % 70}-{1 + k % 12:02d}-{1 + k % 28:02d}" for k in range(n)],
            "sex": rng.choice(["F", "M"], n),
            "clinic": rng.choice([f"C{k}" for k in range(9)], n),
            "region": "North",
        }
    )


def coded_sex(rng: np.random.Generator) -> Frame:
    n = 1200
    return Frame(
        {
            "muni": rng.choice([f"{c:05d}" for c in range(1001, 1020)], n),
            "sexo": rng.choice([1, 6], n),
            "edad": rng.integers(0, 100, n),
            "estado_civil": rng.integers(1, 6, n),
        }
    )


def twice(rng: np.random.Generator) -> Frame:
    frame = by_sex(rng, {"county": NAMES[:40]}, ("men", "women"))
    return pd.concat([frame, frame.iloc[[7]]])


def same_names_of_columns(rng: np.random.Generator) -> str:
    frame = by_sex(rng, {"ward": [f"W{k:02d}" for k in range(30)]}, ("men", "women"))
    return text(frame).replace("men,women", "Total,Total", 1)


def one_county(rng: np.random.Generator) -> Frame:
    codes = [f"15003{t:06d}{b}{k:03d}" for t in (100, 200, 301) for b in (1, 2) for k in range(10)]
    a, b, c = (rng.poisson(size, len(codes)) for size in (40, 20, 9))
    return Frame({"GEOID20": codes, "asian": a, "white": b, "nhpi": c})


def one_state(rng: np.random.Generator) -> Frame:
    codes = [f"37{2 * k + 1:03d}" for k in range(60)]
    return by_sex(rng, {"state": ["North Carolina"] * 60, "fips": codes, "county": NAMES[:60]}, ("male", "female"))


def codes_of_areas(rng: np.random.Generator) -> Frame:
    codes = [f"{state}{2 * k + 1:03d}{100 * (j + 1):06d}" for state in ("02", "44") for k in range(6) for j in range(3)]
    return by_sex(rng, {"Area code": [int(code) for code in codes]}, ("male", "female"))


def some_of_two_years(rng: np.random.Generator) -> Frame:
    codes = [f"48{2 * k + 1:03d}" for k in range(20)]
    every = pd.MultiIndex.from_product(
        [codes, ["F", "M"], ["black", "other", "white"], [2019, 2020]], names=["geoid", "sex", "race", "year"]
    ).to_frame(index=False)
    some = every[rng.random(len(every)) < 0.7]
    return some.assign(persons=rng.negative_binomial(1, 0.05, len(some)))


def people_of_two_years(rng: np.random.Generator) -> Frame:
    n = 400
    county = rng.integers(0, 20, n)
    return Frame(
        {
            "geoid": [f"48{2 * k + 1:03d}" for k in county],
            "county": pd.Series([NAMES[k] for k in county]).where(np.arange(n) != 7),  # one name is missing
            "sex": rng.choice(["F", "M"], n),
            "year": rng.choice([2019, 2020], n),
        }
    )


def a_long_row_twice(rng: np.random.Generator) -> Frame:
    codes = [code for code in ("01001", "04001", "04003", "04005") for _ in range(2)]
    frame = Frame({"id": codes, "sex": ["M", "F"] * 4, "value": [0, 15, 1, 3, 1, 2, 18, 2]})
    return pd.concat([frame, frame.iloc[:1]])


def few_long_rows(rng: np.random.Generator) -> Frame:
    codes = [code for code in ("44001", "44003", "44005", "44007") for _ in range(2)]
    return Frame({"geoid": codes, "sex": ["M", "F"] * 4, "persons": [2, 14, 6, 8, 1, 9, 6, 21]})


# -- cut from real ones --------------------------------------------------------------------------------------------


def real(name: str) -> Callable[[np.random.Generator], bytes]:
    return lambda _: (SMALL_DATA / name).read_bytes()


MORE = (
    Case(
        "footnotes",
        footnotes,
        levels=[EVERY, "Municipality"],
        cells=["Men", "Women"],
        form={"footer": 2},
    ),
    Case(
        "padded footnotes",
        padded_footnotes,
        widths={"land": 2, "kreis": 5},
        geoid="AGS",
        names="Kreis",
        cells=["männlich", "weiblich"],
        form={"delimiter": ";", "footer": 2},
    ),
    Case("two headers", two_headers, levels=[EVERY, "Municipality"], cells=["Men", "Women"], form={"header": 3}),
    Case(
        "titles and notes",
        titles_and_notes,
        ending=".txt",
        levels=[EVERY, "Gemeinde"],
        cells=["Männer", "Frauen"],
        form={"footer": 1},
    ),
    Case(
        "trailing delimiter",
        trailing_delimiter,
        levels=[EVERY, "ward"],
        cells=["men", "women"],
        form={"delimiter": ";"},
    ),
    Case("index column", index_column, levels=[EVERY, "ward"], cells=["men", "women"]),
    Case(
        "unicode text",
        unicode_text,
        ending=".txt",
        levels=[EVERY, "Kraj", "Obec"],
        cells=["muži", "ženy"],
        form={"encoding": "utf-16"},
    ),
    Case("byte order mark", with_bom, levels=[EVERY, "district"], cells=["boys", "girls"], form={"delimiter": "|"}),
    Case("quoted thousands", quoted_thousands, levels=[EVERY, "District"], cells=["Males", "Females"]),
    Case(
        "points of thousands",
        points_of_thousands,
        levels=[EVERY, "Concelho"],
        cells=["Homens", "Mulheres"],
        form={"thousands": "."},
    ),
    Case(
        "below five",
        suppressed("<5"),
        levels=[EVERY, "ward"],
        cells=["men", "women"],
        unread="cell 'men'.*is suppressed",
    ),
    Case("two points", suppressed(".."), levels=[EVERY, "ward"], cells=["men", "women"], unread="cell 'men'"),
    Case("star", suppressed("*"), levels=[EVERY, "ward"], cells=["men", "women"], unread="cell 'men'"),
    Case("not available", suppressed("n/a"), levels=[EVERY, "ward"], cells=["men", "women"], unread="cell 'men'"),
    Case("percent in brackets", percent_in_brackets, levels=[EVERY, "county"], cells=["population"], asks=["cells"]),
    Case("counts and percent", counts_and_percent, levels=[EVERY, "Region"], cells=["Men", "Women"]),
    Case("whole percent", whole_percent, levels=[EVERY, "county"], cells=["male", "female"]),
    Case(
        "subtotals",
        subtotals,
        levels=[EVERY, "region", "district"],
        cells=["men", "women"],
        leave_out={"district": ["Total"]},
        may_ask=["leave_out"],
    ),
    Case(
        "blank totals",
        blank_totals,
        levels=[EVERY, "region", "district"],
        cells=["men", "women"],
        leave_out={"district": [""]},
    ),
    Case(
        "neighbouring blocks",
        neighbouring_blocks,
        widths={"block": 15},
        geoid="GEOID20",
        cells=["people"],
        root=("block group", "440010301001"),
    ),
    Case(
        "german levels",
        german_levels,
        widths={"land": 2, "kreis": 5},
        geoid="AGS",
        names="Name",
        cells=["männlich", "weiblich"],
        leave_out={"AGS": ["DG", "01", "03", "09"]},
        form={"delimiter": ";"},
        may_ask=["leave_out"],
    ),
    Case(
        "state rows",
        state_rows,
        levels=[EVERY, "STATE", "COUNTY"],
        names={"STATE": "STNAME", "COUNTY": "CTYNAME"},
        separator="",
        where={"SUMLEV": "050"},
        cells=["POPESTIMATE2020"],
    ),
    Case("of which", of_which, levels=[EVERY, "Bezirk"], cells=["Insgesamt"], asks=["cells"]),
    Case("total columns", total_columns, levels=[EVERY, "ward"], cells=SEX_AGE),
    Case(
        "voting districts",
        votes_of_districts,
        widths={"county": 5, "voting district": 11},
        geoid="VTDGEOID20",
        names="VTDNAME",
        cells=["VAP_white", "VAP_other"],
        may_ask=["cells", "widths"],
    ),
    Case(
        "corsica",
        corsica,
        widths={"department": 2, "commune": 5},
        geoid="Code commune",
        names="Commune",
        cells=["Hommes", "Femmes"],
        pad_zeros={"Code commune": 5},
        asks=["pad_zeros"],
        may_ask=["widths"],
    ),
    Case(
        "england's regions",
        england_regions,
        levels=[EVERY, "RGN22CD", "LAD22CD"],
        names={"RGN22CD": "RGN22NM", "LAD22CD": "LAD22NM"},
        cells=["Male", "Female"],
    ),
    Case(
        "some of two years",
        some_of_two_years,
        rows="long",
        widths={"county": 5},
        geoid="geoid",
        attributes=["sex", "race"],
        count="persons",
        where={"year": "2020"},
        asks=["where"],
    ),
    Case(
        "people of two years",
        people_of_two_years,
        rows="records",
        widths={"county": 5},
        geoid="geoid",
        attributes=["sex"],
        asks=["where"],
    ),
    Case(
        "few long rows",
        few_long_rows,
        rows="long",
        widths={"county": 5},
        geoid="geoid",
        attributes=["sex"],
        count="persons",
    ),
    Case(
        "a long row twice",
        a_long_row_twice,
        rows="records",
        levels=[EVERY, "id"],
        attributes=["sex"],
        asks=["rows"],
    ),
    Case(
        "codes of areas",
        codes_of_areas,
        widths={"area": 2, "area 2": 5, "unit": 11},
        geoid="Area code",
        cells=["male", "female"],
        pad_zeros={"Area code": 11},
        asks=["pad_zeros", "widths"],
    ),
    Case(
        "canada",
        canada,
        widths={"province": 2, "division": 4, "subdivision": 7},
        geoid="CSDUID",
        cells=["men", "women"],
        may_ask=["widths"],
    ),
    Case(
        "codes as decimals",
        australia_floats,
        widths={"state": 1, "sa4": 3, "sa3": 5, "sa2": 9},
        geoid="SA2_CODE_2021",
        pad_zeros={"SA2_CODE_2021": 9},
        cells=["Males", "Females"],
        may_ask=["widths"],
    ),
    Case(
        "local government",
        local_government,
        levels=[EVERY, "LGA_CODE_2021"],
        cells=["Tot_P_M", "Tot_P_F"],
        may_ask=["widths"],
    ),
    Case(
        "gemeinden",
        gemeinden,
        widths={"land": 2, "kreis": 5, "gemeinde": 8},
        geoid="AGS",
        names="Gemeinde",
        cells=["maennlich", "weiblich"],
        pad_zeros={"AGS": 8},
        asks=["pad_zeros"],
    ),
    Case(
        "india",
        india,
        levels=[EVERY, "State", "District"],
        names={"District": "Name"},
        where={"TRU": "Total"},
        cells=["TOT_M", "TOT_F"],
        may_ask=["where"],
    ),
    Case(
        "sidra",
        sidra,
        widths={"state": 2, "municipality": 7},
        geoid="Cód.",
        names="Município",
        cells=["Homens", "Mulheres"],
        form={"footer": 1},
    ),
    Case(
        "mexican localities",
        mexican_localities,
        levels=[EVERY, "ENTIDAD", "MUN", "LOC"],
        separator="",
        names={"ENTIDAD": "NOM_ENT", "MUN": "NOM_MUN", "LOC": "NOM_LOC"},
        cells=["POBMAS", "POBFEM"],
    ),
    Case(
        "philippines 9",
        philippines(9),
        widths={"region": 2, "province": 4, "municipality": 6, "barangay": 9},
        geoid="psgc",
        names="barangay",
        cells=["population"],
        may_ask=["widths"],
    ),
    Case(
        "philippines 10",
        philippines(10),
        widths={"region": 2, "province": 5, "municipality": 7, "barangay": 10},
        geoid="psgc",
        names="barangay",
        cells=["population"],
        may_ask=["widths"],
    ),
    Case(
        "japan",
        japan,
        levels=[EVERY, "都道府県名", "団体コード"],
        names={"団体コード": "市区町村名"},
        cells=["男", "女"],
    ),
    Case(
        "china",
        china,
        widths={"province": 2, "prefecture": 4, "county": 6},
        geoid="adcode",
        names="name",
        cells=["male", "female"],
        may_ask=["widths"],
    ),
    Case(
        "russia",
        russia,
        how={"encoding": "utf-8"},
        levels=[EVERY, "Регион", "Район"],
        cells=["Мужчины", "Женщины"],
        form={"delimiter": ";"},
        may_ask=["cells", "levels"],
    ),
    Case(
        "poland",
        poland,
        widths={"voivodeship": 2, "powiat": 4, "gmina": 7},
        geoid="Kod",
        names="Nazwa",
        cells=["mężczyźni", "kobiety"],
        may_ask=["widths"],
    ),
    Case("turkey", turkey, levels=[EVERY, "İl", "İlçe"], cells=["Erkek", "Kadın"]),
    Case("code and name", code_and_name, levels=[EVERY, "region"], cells=["män", "kvinnor"]),
    Case(
        "denmark",
        denmark,
        rows="long",
        levels=[EVERY, "OMRÅDE"],
        attributes=["KØN", "ALDER"],
        count="INDHOLD",
        form={"delimiter": ";"},
    ),
    Case(
        "spain by sex",
        spain_by_sex,
        rows="long",
        levels=[EVERY, "Municipios"],
        attributes=["Sexo"],
        count="Total",
        leave_out={"Sexo": ["Total"]},
        form={"delimiter": ";", "thousands": "."},
        may_ask=["thousands", "leave_out"],
    ),
    Case(
        "south africa",
        south_africa,
        levels=[EVERY, "Province", "Municipality", "Ward_ID"],
        cells=["Black African", "Coloured", "Indian or Asian", "White", "Other"],
        may_ask=["cells"],
    ),
    Case("kenya's sexes", kenya_sexes, levels=[EVERY, "County", "SubCounty"], cells=["Male", "Female", "Intersex"]),
    Case("nigeria", nigeria, levels=[EVERY, "State", "LGA"], separator="/", cells=["Males", "Females"]),
    Case("springfields", springfields, levels=[EVERY, "state", "city"], separator="/", cells=["population"]),
    Case(
        "new zealand",
        new_zealand,
        widths={"sa2": 6},
        geoid="SA22023_code",
        names="SA22023_name",
        cells=["male", "female"],
        unread="column 'female'|cell 'female'.*'C'",
    ),
    Case(
        "eurostat",
        eurostat,
        rows="long",
        widths={"country": 2, "nuts 1": 3, "nuts 2": 4},
        geoid="geo",
        attributes=["sex"],
        count="OBS_VALUE",
        may_ask=["widths"],
    ),
    Case(
        "two rows of names",
        acs_two_headers,
        widths={"state": 11, "county": 14},
        geoid="Geography",
        names="Geographic Area Name",
        cells=["Estimate!!Total:!!White alone", "Estimate!!Total:!!Black alone"],
        form={"header": 2},
        may_ask=["cells"],
    ),
    Case(
        "name with state",
        county_and_state_in_name,
        levels=["state", "county"],
        names={"county": "NAME"},
        cells=["population"],
    ),
    Case(
        "jobs",
        lodes,
        widths={"county": 5, "tract": 11, "block group": 12, "block": 15},
        geoid="w_geocode",
        cells=["CA01", "CA02", "CA03"],
        asks=["cells"],
    ),
    Case(
        "cumulated",
        cumulated,
        levels=[EVERY, "state", "fips"],
        names={"fips": "county"},
        where={"date": "2020-04-03"},
        cells=["cases", "deaths"],
        asks=["where", "cells"],
    ),
    Case(
        "census extract",
        census_extract,
        rows="records",
        levels=[EVERY, "STATEFIP", "PUMA"],
        attributes=["SEX", "AGE", "RACE"],
        asks=["rows"],
        pad_zeros={"STATEFIP": 2},
    ),
    Case("incidents", incidents, rows="records", levels=[EVERY, "district"], attributes=["primary_type", "arrest"]),
    Case(
        "precinct results",
        precinct_results,
        rows="long",
        levels=[EVERY, "county", "precinct"],
        attributes=["candidate"],
        count="votes",
    ),
    Case(
        "schools", schools, levels=[EVERY, "LEAID", "NCESSCH"], names={"NCESSCH": "SCH_NAME"}, cells=["boys", "girls"]
    ),
    Case(
        "towns with places",
        towns_with_places,
        levels=[EVERY, "state_id", "id"],
        names={"id": "city"},
        cells=["population"],
    ),
    Case("columns of years", columns_of_years, levels=[EVERY, "Region"], cells=["2020"], asks=["cells"]),
    Case(
        "variables and values",
        variables_and_values,
        rows="long",
        levels=[EVERY, "area"],
        attributes=["variable"],
        count="value",
    ),
    Case(
        "restarting numbers",
        restarting_numbers,
        levels=[EVERY, "region", "district"],
        separator="/",
        cells=["men", "women"],
    ),
    Case("birthdays", birthdays, rows="records", levels=["region", "clinic"], attributes=["sex"]),
    Case(
        "coded sex",
        coded_sex,
        rows="records",
        widths={"municipality": 5},
        geoid="muni",
        attributes=["sexo", "edad", "estado_civil"],
    ),
    Case("twice", twice, levels=[EVERY, "county"], cells=["men", "women"], unread="duplicate GEOID"),
    Case("same names of columns", same_names_of_columns, refused="Total"),
    Case(
        "one county",
        one_county,
        widths={"tract": 11, "block group": 12, "block": 15},
        geoid="GEOID20",
        root=("county", "15003"),
        cells=["asian", "white", "nhpi"],
    ),
    Case(
        "one state's counties",
        one_state,
        widths={"county": 5},
        root=("state", "37"),
        geoid="fips",
        names="county",
        cells=["male", "female"],
    ),
    Case(
        "real counties",
        real("us_county2010_pop.csv"),
        levels=[EVERY, "STATEFP", "geoid"],
        names={"STATEFP": "STNAME", "geoid": "COUNAME"},
        cells=["POPULATION"],
    ),
    Case(
        "real ages",
        real("us_county_age_sex_2010.csv"),
        rows="long",
        widths=US2,
        geoid="geoid",
        attributes=["age", "sex"],
        count="population",
    ),
    Case(
        "real homes",
        real("us_county_pop_housingunits_2010.csv"),
        widths=US2,
        geoid="geoid",
        names="name",
        cells=["population"],
        asks=["cells"],
    ),
    Case(
        "real blocks",
        real("ri_block_race_2010.csv"),
        widths={"county": 5, "tract": 11, "block group": 12, "block": 15},
        geoid="GEOID",
        cells=["pop_aian", "pop_asian", "pop_black", "pop_hisp", "pop_nhpi", "pop_other", "pop_two", "pop_white"],
        may_ask=["cells"],
    ),
    Case(
        "real persons",
        real("ri_pl94_2018_persons.csv"),
        rows="long",
        widths={"tract": 11, "block group": 12, "block": 15},
        geoid="block",
        attributes=["hhgq", "votingage", "hispanic", "cenrace"],
        count="persons",
    ),
    Case("real list of units", real("ri_pl94_2018_blocks.csv"), refused="list of units"),
)
