"""Write us_counties.geojson, the outlines of US counties, from the package bokeh_sampledata, for the map of a study.

    pip install bokeh_sampledata && python data/build_us_county_shapes.py [FILE]

The source is the Census Bureau's cartographic boundary file of counties, a work of the United States government and in
the public domain. Only outer boundaries are kept, at a hundredth of a degree. The file is a convenience of some MB and
not part of the repository; name it in a study's configuration as study.geometry.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

DECIMALS = 2
SMALLEST_AREA = 1e-9
"""Below this, in square degrees, is rounding."""


def rings(longitudes: np.ndarray, latitudes: np.ndarray) -> list[list[list[list[float]]]]:
    """One polygon for each run between NaNs, closed and wound clockwise, as d3 and Vega draw what lies inside.

    Slivers of which rounding leaves no area are left out.
    """
    points = np.column_stack([longitudes, latitudes])
    breaks = np.flatnonzero(np.isnan(points).any(axis=1))
    found = []
    for part in np.split(points, breaks):
        part = part[~np.isnan(part).any(axis=1)].round(DECIMALS)
        part = part[np.concatenate([[True], (np.diff(part, axis=0) != 0).any(axis=1)])] if len(part) else part
        if len(part) >= 4:
            closed = part if (part[0] == part[-1]).all() else np.vstack([part, part[:1]])
            area = signed_area(closed)
            if abs(area) > SMALLEST_AREA:
                found.append([(closed if area < 0 else closed[::-1]).tolist()])
    return found


def signed_area(ring: np.ndarray) -> float:
    """The area within a closed ring, in square degrees, positive where it is wound counterclockwise (shoelace)."""
    x, y = (ring - ring[0]).T
    return float(0.5 * np.sum(x[:-1] * y[1:] - x[1:] * y[:-1]))


def main() -> None:
    """Write the file."""
    from bokeh_sampledata.us_counties import data

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=Path(__file__).with_name("us_counties.geojson"))
    target = parser.parse_args().file
    features = [
        {
            "type": "Feature",
            "id": f"{state:02d}{county:03d}",
            "properties": {"name": one["detailed_name"]},
            "geometry": {"type": "MultiPolygon", "coordinates": rings(one["lons"], one["lats"])},
        }
        for (state, county), one in sorted(data.items())
    ]
    target.write_text(json.dumps({"type": "FeatureCollection", "features": features}, separators=(",", ":")))
    print(f"{target}: {len(features):,} counties, {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
