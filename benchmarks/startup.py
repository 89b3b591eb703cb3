"""How long starting takes, beside `import pandas`, in one run: medians of several new processes, taken in turn.

Seconds are of the processors, of all threads together: on a machine that does other work, too, they vary less.

``python benchmarks/startup.py [--repeats N] [--json FILE]``. "the names of a release" is what the first use of
Geography, Counts, Plan, measure, project and round_counts loads: numpy, pandas, pyarrow and some scipy, and no solver.
"a county table" is ``topdown run pipelines/us_counties.toml``, from the table to all public files.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from record import as_installed, save

NAMES = "Geography, Counts, Plan, measure, project, round_counts"
COUNTIES = Path(__file__).parent.parent / "pipelines" / "us_counties.toml"
COMMAND = "import sys; sys.argv = ['topdown', *sys.argv[1:]]; from topdown.entry import main; main()"
PROGRAMS = {
    "an empty program": ["-c", "pass"],
    "import pandas": ["-c", "import pandas"],
    "import topdown": ["-c", "import topdown"],
    "topdown --help": ["-c", "import sys; sys.argv = ['topdown', '--help']; from topdown.cli import main; main()"],
    "the names of a release": ["-c", f"from topdown import {NAMES}"],
    "import cvxpy": ["-c", "import cvxpy"],
    "a county table": ["-c", COMMAND, "run", str(COUNTIES), "--quiet", "--output"],
}
AT_MOST = {"import topdown": 1.5, "topdown --help": 2.0}


def seconds(program: list[str]) -> float:
    """Processor seconds of a new process; the last option of a command gets a new folder."""
    with tempfile.TemporaryDirectory() as folder:
        last = [str(Path(folder) / "output")] if program[-1] == "--output" else []
        began = os.times()
        command = [sys.executable, *program, *last]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=as_installed())
        ended = os.times()
    return ended.children_user + ended.children_system - began.children_user - began.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", type=Path, help="write here in place of benchmarks/results/startup.json")
    arguments = parser.parse_args()
    for program in PROGRAMS.values():
        seconds(program)  # what is read from the disk for the first time counts for nobody
    taken: dict[str, list[float]] = {title: [] for title in PROGRAMS}
    for _ in range(arguments.repeats):
        for title, program in PROGRAMS.items():
            taken[title].append(seconds(program))
    median = {title: statistics.median(times) for title, times in taken.items()}
    figures: dict[str, float] = {}
    for title, value in median.items():
        ratio = value / median["import pandas"]
        goal = f"   (at most {AT_MOST[title]})" if title in AT_MOST else ""
        print(f"{title:30s} {value:8.3f} s   times import pandas {ratio:6.2f}{goal}")
        figures |= {f"{title}, seconds": value, f"{title}, times import pandas": ratio}
    print(f"kept in {save('startup', figures, arguments.json)}")


if __name__ == "__main__":
    main()
