"""Pages in Chromium, where there is one: what a probe in the page saw."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)


def in_a_browser(test: Callable[..., None]) -> Callable[..., None]:
    """A test that draws a page, among those of whole runs: left out where there is no browser and none is required."""
    missing = CHROMIUM is None and os.environ.get("TOPDOWN_BROWSER") != "required"
    return pytest.mark.system(pytest.mark.skipif(missing, reason="no chromium here: the page is not drawn")(test))


FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr"),
    *("--disable-dev-shm-usage", "--v=0", "--virtual-time-budget=20000", "--allow-file-access-from-files"),
]


def browsed(path: Path, profile: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """What Chromium makes of the page at ``path``, which writes nothing to its console."""
    assert CHROMIUM is not None, "a browser is required here, and there is none"
    done = subprocess.run(
        [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", *more, path.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    return done


def told(done: subprocess.CompletedProcess[str]) -> Any:
    """The JSON that a probe left in the page."""
    raw = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert raw is not None, done.stdout[-500:]
    return json.loads(raw.group(1).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


def data_of(page: str) -> dict[str, Any]:
    """What a page embeds."""
    found = re.search(r'id="data">([^<]*)</script>', page)
    assert found is not None
    data: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(found[1])))
    return data
