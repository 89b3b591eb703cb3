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
from bokeh_sampledata.us_counties import data

DECIMALS = 2


def rings(longitudes: np.ndarray, latitudes: np.ndarray) -> list[list[list[list[float]]]]:
    """One polygon for each run between NaNs, closed."""
    points = np.column_stack([longitudes, latitudes])
    breaks = np.flatnonzero(np.isnan(points).any(axis=1))
    found = []
    for part in np.split(points, breaks):
        part = part[~np.isnan(part).any(axis=1)].round(DECIMALS)
        part = part[np.concatenate([[True], (np.diff(part, axis=0) != 0).any(axis=1)])] if len(part) else part
        if len(part) >= 4:
            closed = part if (part[0] == part[-1]).all() else np.vstack([part, part[:1]])
            found.append([closed.tolist()])
    return found


def main() -> None:
    """Write the file."""
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
