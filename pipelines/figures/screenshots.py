"""Take the pictures of a study's report: docs/figures/report.png, report_findings.png and report_margins.png; and of
the page of a release, release_page.png; of a study of two linked tables, linked_results.png and linked_errors.png.

topdown study pipelines/us_counties_study.toml
topdown study pipelines/persons_and_households_small.toml
python pipelines/figures/screenshots.py [PICTURE...]

docs/release_page.md has the commands that make the other page. Needs Chromium, and Pillow, which matplotlib brings. A
picture begins at a section's title.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "output" / "us_counties_study" / "internal" / "report.html"
LINKED_REPORT = ROOT / "output" / "persons_and_households_small" / "internal" / "report.html"
RELEASE_PAGE = ROOT / "output" / "us_counties" / "page.html"
PICTURES = {
    "report": (REPORT, "favoured", 460),
    "report_findings": (REPORT, "", 560),
    "report_margins": (REPORT, "coverage", 760),
    "release_page": (RELEASE_PAGE, "map", 1160),
    "linked_results": (LINKED_REPORT, "impossible", 455),
    "linked_errors": (LINKED_REPORT, "errors", 400),
}
"""By the picture's name the page, the section, and the height in pixels at a width of 1,000."""

CHOICE = """<script type="module">
while (!document.body.dataset.ready) await new Promise(go => setTimeout(go, 20));
document.getElementById("paste-a").value = "48371, 48043, 48377";
document.querySelector("[data-add=paste-a]").click();
</script></body>"""
"""What is chosen in the page of a release: three counties of Texas."""


def main(*names: str) -> None:
    """Takes those that are named, or all."""
    browser = next(found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name)))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=20000"]
    flags += ["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    for name in names or PICTURES:
        made, section, height = PICTURES[name]
        path = ROOT / "docs" / "figures" / f"{name}.png"
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder, "page.html")
            page.write_text(beginning_at(section, made.read_text(encoding="utf-8")), encoding="utf-8")
            profile, size = f"--user-data-dir={folder}/profile", f"--window-size=1000,{height}"
            subprocess.run(
                [browser, *flags, profile, size, f"--screenshot={path}", page.as_uri()],
                capture_output=True,
                timeout=120,
                check=True,
            )
        Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)
        print(path)


def beginning_at(section: str, page: str) -> str:
    """The page without what stands above a section's title."""
    above = f".notice, header, main > :not(#{section}, #{section} ~ *)" if section else ".notice"
    page = CHOICE.join(page.rsplit("</body>", 1)) if section == "map" else page
    return page.replace("</head>", f"<style>{above} {{ display: none }}</style></head>", 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
