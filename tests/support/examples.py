"""How many examples hypothesis tries of a property: a fourth, or all of them where they are asked for.

Where a change is judged the examples are the same every time, so that no change is refused for what it has not touched;
new ones are looked for at a desk.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

FIXED = bool(os.environ.get("CI"))
"""Whether they are the same every time: where ``CI`` is set, as `.ci/run` and the services that run such scripts do."""
ALL = os.environ.get("TOPDOWN_EXAMPLES") == "all"
"""Whether all are tried, which takes some minutes more."""


def examples(count: int, **more: Any) -> settings:
    """Settings for a property of which ``count`` examples are tried, or a fourth of them and 10 at least (`ALL`), with
    ``more`` settings. No example has a deadline: what makes one slow is another process on the same cores."""
    most = count if ALL else min(count, max(10, count // 4))
    return settings(max_examples=most, deadline=None, **{"derandomize": FIXED, **more})
