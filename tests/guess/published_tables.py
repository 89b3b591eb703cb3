"""A third set of tables for `topdown init`, of shapes that the others have not; what is right was written first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from guess.corpus import EVERY, NAMES, Case, marked, sizes
from guess.wild_tables import Frame, by_sex, text, units

STATES = ("Ohio", "Iowa", "Utah", "Maine", "Texas")


def encyclopedia(rng: np.random.Generator) -> Frame:
    now = np.sort(sizes(rng, 50, 1, scale=900000)[0])[::-1]
    before = (now * rng.uniform(0.8, 1.2, 50)).astype(int)
    change = [f"{100 * (a / b - 1):+.2f}%" for a, b in zip(now, before, strict=True)]
    columns = {
        "Rank": range(1, 51),
        "State": NAMES[:50],
        "2020 census": marked(now, ","),
        "2010 census": marked(before, ","),
    }
    return Frame({**columns, "Change": change, "Seats": rng.integers(1, 9, 50)})


def irish_counties(rng: np.random.Generator) -> Frame:
    provinces = [p for p in ("Leinster", "Munster", "Connacht", "Ulster") for _ in range(8)]
    return by_sex(rng, {"Province": provinces, "County": NAMES[:32]}, ("Males", "Females"), total="Persons")


def data_zones(rng: np.random.Generator) -> Frame:
    zones = [f"S010{6506 + k:05d}" for k in range(48)]
    council = [f"Council {k // 12}" for k in range(48)]
    return by_sex(rng, {"DataZone": zones, "CouncilArea": council}, ("male", "female"))


def indented(rng: np.random.Generator) -> str:
    """Switzerland's rows for the whole, cantons, districts and communes, told apart by signs before their names."""
    rows: list[tuple[str, int, int]] = []
    for canton in ("Zürich", "Bern"):
        parts: list[tuple[str, int, int]] = []
        for district in range(3):
            m, f = sizes(rng, 5, 0.5, 0.5)
            below = [
                (f"......{100 * district + k:04d} Dorf {canton} {district}{k}", int(m[k]), int(f[k])) for k in range(5)
            ]
            parts += [(f">> Bezirk {canton} {district}", int(m.sum()), int(f.sum())), *below]
        top = [one for one in parts if one[0].startswith(">>")]
        rows += [(f"- {canton}", sum(one[1] for one in top), sum(one[2] for one in top)), *parts]
    top = [one for one in rows if one[0].startswith("- ")]
    rows.insert(0, ("Schweiz", sum(one[1] for one in top), sum(one[2] for one in top)))
    return text(Frame(rows, columns=["Region", "Mann", "Frau"]), ";")


def belgium(rng: np.random.Generator) -> Frame:
    rows = [(c, f"Gemeente {c}", s, n) for c in range(11001, 11017) for s in ("M", "F") for n in ("BEL", "ETR")]
    return Frame(rows, columns=["CD_REFNIS", "TX_DESCR_NL", "CD_SEX", "CD_NATLTY"]).assign(
        MS_POPULATION=rng.poisson(900, len(rows))
    )


def dutch_open_data(rng: np.random.Generator) -> Frame:
    codes = [f"GM{3 + 31 * k:04d}" for k in range(40)]
    columns = {"ID": range(40), "RegioS": codes, "Perioden": ["2023JJ00"] * 40}
    return by_sex(rng, columns, ("Mannen_2", "Vrouwen_3"), total="TotaleBevolking_1")


def czech(rng: np.random.Generator) -> Frame:
    districts = [f"CZ020{k // 8 + 1}" for k in range(40)]
    columns = {
        "kod_okresu": districts,
        "kod_obce": [f"{529303 + 17 * k}" for k in range(40)],
        "nazev_obce": units(40, "Obec"),
    }
    return by_sex(rng, columns, ("muzi", "zeny"), total="celkem").assign(prumerny_vek=rng.uniform(35, 50, 40).round(1))


def chile(rng: np.random.Generator) -> Frame:
    rows = [
        (r, f"Región {r}", 10 * r + p, f"Provincia {r}{p}", 1000 * r + 100 * p + c, f"Comuna {r}{p}{c}")
        for r in (1, 5, 13)
        for p in (1, 2)
        for c in range(1, 7)
    ]
    names = ["Código Región", "Nombre Región", "Código Provincia", "Nombre Provincia", "Código Comuna", "Nombre Comuna"]
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    return by_sex(rng, columns, ("Hombres", "Mujeres"), total="Total")


def argentina(rng: np.random.Generator) -> Frame:
    codes = [f"{p:02d}{d:03d}" for p in (2, 6, 14) for d in range(7, 84, 7)]
    provinces = {"02": "CABA", "06": "Buenos Aires", "14": "Córdoba"}
    columns = {"codigo": codes, "departamento": units(33, "Partido"), "provincia": [provinces[c[:2]] for c in codes]}
    return by_sex(rng, columns, ("varones", "mujeres"), total="total")


def indonesia(rng: np.random.Generator) -> Frame:
    rows = [
        (k, 32, "JAWA BARAT", 3201 + t, f"KABUPATEN {t}", s)
        for t in range(14)
        for k, s in enumerate(("LAKI-LAKI", "PEREMPUAN"))
    ]
    frame = Frame(
        rows,
        columns=["id", "kode_provinsi", "nama_provinsi", "kode_kabupaten_kota", "nama_kabupaten_kota", "jenis_kelamin"],
    )
    frame["id"] = range(1, len(frame) + 1)
    return frame.assign(jumlah_penduduk=rng.poisson(90000, len(frame)), satuan="JIWA", tahun=2022)


def in_thousands(rng: np.random.Generator) -> Frame:
    rows = [(s, x) for s in ("Johor", "Kedah", "Perak", "Perlis") for x in ("male", "female")]
    return Frame(rows, columns=["state", "sex"]).assign(date="2023-01-01", population=rng.uniform(90, 2000, 8).round(1))


def humanitarian(rng: np.random.Generator) -> Frame:
    rows = [(f"ET{r:02d}{z:02d}", f"Zone {r}{z}", f"ET{r:02d}", f"Region {r}") for r in (1, 2, 3) for z in range(1, 11)]
    frame = Frame(rows, columns=["ADM2_PCODE", "ADM2_EN", "ADM1_PCODE", "ADM1_EN"]).assign(
        ADM0_EN="Ethiopia", ADM0_PCODE="ET", year=2022
    )
    cells = {f"{s}_{a}": rng.poisson(4000, 30) for s in "FM" for a in ("00_04", "05_09", "10_14", "15_plus")}
    for s in "FM":
        frame[f"{s}_TL"] = sum(v for k, v in cells.items() if k[0] == s)
    return frame.assign(T_TL=frame["F_TL"] + frame["M_TL"], **cells)


HUMANITARIAN = [f"{s}_{a}" for s in "FM" for a in ("00_04", "05_09", "10_14", "15_plus")]


def tagged(rng: np.random.Generator) -> str:
    frame = by_sex(
        rng, {"Region": ["North"] * 10 + ["South"] * 10, "District": units(20, "District")}, ("Male", "Female")
    )
    lines = text(frame).splitlines()
    return "\n".join([lines[0], "#adm1+name,#adm2+name,#population+m,#population+f", *lines[1:]]) + "\n"


def places_as_columns(rng: np.random.Generator) -> Frame:
    labels = ["Total:", "Hispanic or Latino", "Not Hispanic or Latino:", "White alone", "Black alone", "Asian alone"]
    return Frame(
        {"Label (Grouping)": labels}
        | {f"{NAMES[k]} County, Ohio": marked(rng.poisson(4000, 6), ",") for k in range(12)}
    )


def hospitals(rng: np.random.Generator) -> Frame:
    columns = {
        "Provider ID": [f"{k:06d}" for k in range(10001, 10001 + 13 * 50, 13)],
        "Hospital Name": units(50, "Hospital"),
    }
    more = {
        "State": [s for s in ("AL", "AK", "AZ", "AR", "CA") for _ in range(10)],
        "ZIP Code": [f"{k:05d}" for k in range(35007, 35007 + 50 * 11, 11)],
    }
    return Frame(
        {
            **columns,
            **more,
            "Total Discharges": rng.poisson(400, 50),
            "Average Covered Charges": [f"${v:,.2f}" for v in rng.uniform(9000, 90000, 50)],
        }
    )


def grades(rng: np.random.Generator) -> Frame:
    frame = Frame({"county": [c for c in STATES for _ in range(8)], "school": units(40, "School")})
    cells = {f"grade_{g:02d}": rng.poisson(60, 40) for g in range(1, 7)}
    return frame.assign(enrollment=sum(cells.values()), **cells)


def voters(rng: np.random.Generator) -> Frame:
    n = 1500
    county = rng.integers(0, 6, n)
    columns = {"voter_id": [f"VR{100000 + 7 * k}" for k in range(n)], "county": [NAMES[c] for c in county]}
    return Frame(
        {
            **columns,
            "precinct": [f"{NAMES[c][:2].upper()}{p:02d}" for c, p in zip(county, rng.integers(1, 6, n), strict=True)],
            "party": rng.choice(["DEM", "REP", "UNA"], n),
            "birth_year": rng.integers(1930, 2004, n),
            "gender": rng.choice(["F", "M"], n),
        }
    )


def payroll(rng: np.random.Generator) -> Frame:
    n = 800
    columns = {
        "employee_name": [f"{NAMES[k % 120]}, {NAMES[(7 * k) % 110]}" for k in range(n)],
        "department": rng.choice(["Police", "Fire", "Parks", "Works"], n),
    }
    return Frame(
        {
            **columns,
            "location": rng.choice(units(9, "Site"), n),
            "gender": rng.choice(["F", "M"], n),
            "annual_salary": rng.uniform(30000, 150000, n).round(2),
        }
    )


def deaths_with_totals(rng: np.random.Generator) -> Frame:
    rows = []
    for state in STATES:
        cells = {(s, a): int(rng.poisson(200)) for s in ("Male", "Female") for a in ("0-24", "25-64", "65+")}
        rows += [
            (state, s, a, sum(v for (x, y), v in cells.items() if s in ("All Sexes", x) and a in ("All Ages", y)))
            for s in ("All Sexes", "Male", "Female")
            for a in ("All Ages", "0-24", "25-64", "65+")
        ]
    return Frame(rows, columns=["State", "Sex", "Age Group", "Deaths"])


def farms(rng: np.random.Generator) -> Frame:
    frame = Frame(
        {
            "state": ["OHIO"] * 20 + ["IOWA"] * 20,
            "county": [f"{NAMES[k].upper()}" for k in range(40)],
            "farms": marked(rng.poisson(1500, 40), ","),
        }
    )
    frame.loc[[4, 11], "farms"] = "(D)"
    return frame


def merged_cells(rng: np.random.Generator) -> Frame:
    frame = by_sex(
        rng, {"Region": [r for r in STATES for _ in range(6)], "District": units(30, "District")}, ("Men", "Women")
    )
    frame["Region"] = frame["Region"].where(~frame["Region"].duplicated())
    return frame


def lines_in_names(rng: np.random.Generator) -> Frame:
    return by_sex(rng, {"Local\nauthority": NAMES[:30]}, ("Males\n2021", "Females\n2021"))


def dashed(rng: np.random.Generator) -> Frame:
    codes = [f"{r}-{p:02d}-{c:03d}" for r in (1, 2) for p in (1, 2, 3) for c in range(1, 8)]
    return by_sex(rng, {"code": codes, "commune": units(42, "Commune")}, ("hommes", "femmes"))


def iso_codes(rng: np.random.Generator) -> Frame:
    codes = [
        f"DE-{a}"
        for a in ("BW", "BY", "BE", "BB", "HB", "HH", "HE", "MV", "NI", "NW", "RP", "SL", "SN", "ST", "SH", "TH")
    ]
    return by_sex(rng, {"iso": codes, "name": units(16, "Land")}, ("male", "female"))


def grid(rng: np.random.Generator) -> Frame:
    cells = [f"CRS3035RES1000mN{2600 + k // 10}000E{4300 + k % 10}000" for k in range(60)]
    return by_sex(rng, {"GRD_ID": cells}, ("M", "F"), total="T", scale=300)


def typed_records(rng: np.random.Generator) -> Frame:
    n = 900
    columns = {"region": pd.Categorical(rng.choice(NAMES[:6], n)), "sex": pd.Categorical(rng.choice(["f", "m"], n))}
    return Frame(
        {
            **columns,
            "employed": rng.choice([True, False], n),
            "age": rng.integers(16, 90, n).astype("int8"),
            "weight_kg": rng.normal(70, 9, n),
        }
    )


def quarter(rng: np.random.Generator) -> Frame:
    rows = [(q, lad) for q in ("2022 Q1", "2022 Q2", "2022 Q3") for lad in [f"E0{6000001 + k}" for k in range(14)]]
    return Frame(rows, columns=["Quarter", "LAD code"]).assign(Births=rng.poisson(300, len(rows)))


def tenure(rng: np.random.Generator) -> Frame:
    a, b, c = sizes(rng, 36, 0.6, 0.3, 0.1)
    columns: dict[str, Sequence[object]] = {"SA": [f"A{k:05d}" for k in range(36)], "All households": a + b + c}
    return Frame({**columns, "Owned": a, "Rented": b, "Not stated": c, "% owned": (100 * a / (a + b + c)).round(1)})


def state_and_fips(rng: np.random.Generator) -> Frame:
    columns = {
        "State": ["NC"] * 40,
        "County": [f"{NAMES[k]} County" for k in range(40)],
        "FIPS": [37001 + 2 * k for k in range(40)],
    }
    return Frame({**columns, "Registered": rng.poisson(9000, 40)})


def nomis(rng: np.random.Generator) -> str:
    m, f = sizes(rng, 40, 0.5, 0.5)
    columns = {"local authority: district": units(40, "District"), "mnemonic": [f"E0{6000001 + k}" for k in range(40)]}
    frame = Frame({**columns, "Total: All usual residents": m + f, "Female": f, "Male": m})
    above = ['"TS008 - Sex"', '"ONS Crown Copyright Reserved"', '""', '"date","2021"', '"measures","value"', '""']
    return text(frame, above=above, below=["", '"To protect against disclosure, records have been swapped."'])


def deaths_as_text(rng: np.random.Generator) -> str:
    """A row "Total" and notes below, whose columns are tabs."""
    columns = {
        "Notes": "",
        "County": [f"{NAMES[k]} County, OH" for k in range(40)],
        "County Code": [f"39{2 * k + 1:03d}" for k in range(40)],
    }
    frame = Frame({**columns, "Deaths": rng.poisson(400, 40), "Population": rng.poisson(40000, 40)})
    total = Frame([["Total", "", "", frame["Deaths"].sum(), frame["Population"].sum()]], columns=frame.columns)
    return text(pd.concat([frame, total]), "\t", below=['"---"', '"Dataset: Underlying Cause of Death"', '"---"'])


def sheet_with_notes(rng: np.random.Generator) -> Frame:
    frame = by_sex(rng, {"Region": ["N"] * 10 + ["S"] * 10, "District": units(20, "D")}, ("Men", "Women"))
    return pd.concat([frame, Frame({"Region": [None, "Source: the office", "* provisional"]})])


def flagged(rng: np.random.Generator) -> Frame:
    """Numbers of which some have a letter beside them are no names."""
    codes = [f"Q{k}" for k in range(117, 217, 10)]
    frame = Frame({"code": codes, "men": rng.poisson(90000, 10), "2022": rng.poisson(200000, 10).astype(str)})
    frame.loc[3:, "2022"] += " p"
    return frame


INDENTED = ["Schweiz"] + [
    name for canton in ("Zürich", "Bern") for name in (f"- {canton}", *(f">> Bezirk {canton} {k}" for k in range(3)))
]

PUBLISHED = (
    Case(
        "nomis",
        nomis,
        levels=[EVERY, "mnemonic"],
        names={"mnemonic": "local authority: district"},
        cells=["Female", "Male"],
        form={"header": 7, "footer": 1},
    ),
    Case(
        "deaths as text",
        deaths_as_text,
        ending=".txt",
        widths={"county": 5},
        root=("state", "39"),
        geoid="County Code",
        names="County",
        cells=["Population"],
        leave_out={"Notes": ["Total"], "County": [""], "County Code": [""]},
        form={"footer": 3},
        asks=["cells"],
    ),
    Case(
        "sheet with notes",
        sheet_with_notes,
        ending=".xlsx",
        how={"startrow": 3},
        levels=[EVERY, "Region", "District"],
        cells=["Men", "Women"],
        form={"header": 4, "footer": 2},
    ),
    Case("flagged", flagged, levels=[EVERY, "code"], names={}, cells=["men"], asks=["cells"], may_ask=["widths"]),
    Case("encyclopedia", encyclopedia, levels=[EVERY, "State"], cells=["2020 census"], asks=["cells"]),
    Case("irish counties", irish_counties, levels=[EVERY, "Province", "County"], cells=["Males", "Females"]),
    Case(
        "data zones",
        data_zones,
        levels=[EVERY, "CouncilArea", "DataZone"],
        cells=["male", "female"],
        may_ask=["levels"],
    ),
    Case("indented", indented, levels=[EVERY, "Region"], cells=["Mann", "Frau"], leave_out={"Region": INDENTED}),
    Case(
        "belgium",
        belgium,
        rows="long",
        widths={"commune": 5},
        root=("arrondissement", "11"),
        geoid="CD_REFNIS",
        names="TX_DESCR_NL",
        attributes=["CD_SEX", "CD_NATLTY"],
        count="MS_POPULATION",
    ),
    Case("dutch open data", dutch_open_data, levels=[EVERY, "RegioS"], cells=["Mannen_2", "Vrouwen_3"]),
    Case(
        "czech",
        czech,
        levels=[EVERY, "kod_okresu", "kod_obce"],
        names={"kod_obce": "nazev_obce"},
        cells=["muzi", "zeny"],
    ),
    Case(
        "chile",
        chile,
        levels=[EVERY, "Código Región", "Código Provincia", "Código Comuna"],
        names={
            "Código Región": "Nombre Región",
            "Código Provincia": "Nombre Provincia",
            "Código Comuna": "Nombre Comuna",
        },
        cells=["Hombres", "Mujeres"],
        pad_zeros={"Código Región": 2, "Código Provincia": 3, "Código Comuna": 5},
        asks=["pad_zeros"],
    ),
    Case(
        "argentina",
        argentina,
        levels=[EVERY, "provincia", "codigo"],
        names={"codigo": "departamento"},
        cells=["varones", "mujeres"],
    ),
    Case(
        "indonesia",
        indonesia,
        rows="long",
        widths={"kabupaten": 4},
        root=("provinsi", "32"),
        geoid="kode_kabupaten_kota",
        names="nama_kabupaten_kota",
        attributes=["jenis_kelamin"],
        count="jumlah_penduduk",
    ),
    Case("in thousands", in_thousands, refused="whole numbers"),
    Case(
        "humanitarian",
        humanitarian,
        levels=["ADM0_EN", "ADM1_PCODE", "ADM2_PCODE"],
        names={"ADM1_PCODE": "ADM1_EN", "ADM2_PCODE": "ADM2_EN"},
        cells=HUMANITARIAN,
    ),
    Case(
        "tagged",
        tagged,
        levels=[EVERY, "#adm1+name", "#adm2+name"],
        cells=["#population+m", "#population+f"],
        form={"header": 2},
    ),
    Case("places as columns", places_as_columns, refused="list of units"),
    Case(
        "hospitals",
        hospitals,
        levels=[EVERY, "State", "Provider ID"],
        names={"Provider ID": "Hospital Name"},
        cells=["Total Discharges"],
    ),
    Case("grades", grades, levels=[EVERY, "county", "school"], cells=[f"grade_{g:02d}" for g in range(1, 7)]),
    Case(
        "voters",
        voters,
        rows="records",
        levels=[EVERY, "county", "precinct"],
        separator="/",
        attributes=["party", "gender"],
    ),
    Case(
        "payroll",
        payroll,
        rows="records",
        levels=[EVERY, "location"],
        attributes=["department", "gender"],
        may_ask=["rows", "units"],
    ),
    Case(
        "deaths with totals",
        deaths_with_totals,
        rows="long",
        levels=[EVERY, "State"],
        attributes=["Sex", "Age Group"],
        count="Deaths",
        leave_out={"Sex": ["All Sexes"], "Age Group": ["All Ages"]},
    ),
    Case("farms", farms, levels=[EVERY, "state", "county"], cells=["farms"], unread="is suppressed"),
    Case("merged cells", merged_cells, levels=[EVERY, "District"], cells=["Men", "Women"]),
    Case("lines in names", lines_in_names, levels=[EVERY, "Local\nauthority"], cells=["Males\n2021", "Females\n2021"]),
    Case("dashed codes", dashed, levels=[EVERY, "code"], names={"code": "commune"}, cells=["hommes", "femmes"]),
    Case("iso codes", iso_codes, levels=[EVERY, "iso"], names={"iso": "name"}, cells=["male", "female"]),
    Case("grid", grid, levels=[EVERY, "GRD_ID"], cells=["M", "F"]),
    Case(
        "typed records",
        typed_records,
        ending=".parquet",
        rows="records",
        levels=[EVERY, "region"],
        attributes=["sex", "employed", "age"],
        may_ask=["rows"],
    ),
    Case(
        "quarters", quarter, levels=[EVERY, "LAD code"], cells=["Births"], where={"Quarter": "2022 Q3"}, asks=["where"]
    ),
    Case("tenure", tenure, levels=[EVERY, "SA"], cells=["Owned", "Rented", "Not stated"]),
    Case(
        "state and fips",
        state_and_fips,
        widths={"county": 5},
        root=("state", "37"),
        geoid="FIPS",
        names="County",
        cells=["Registered"],
        pad_zeros={},
    ),
)
