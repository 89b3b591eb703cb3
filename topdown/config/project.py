"""A release that is derived from measurements alone."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from topdown.config.derivation import DerivationConfig
from topdown.config.section import Section


class MeasurementsOptions(Section):
    """Where the measurements are: the public directory of a release."""

    path: str


class ProjectConfig(DerivationConfig):
    """A release from measurements that were drawn before: another projection of the same noise, at no budget."""

    measurements: MeasurementsOptions

    @property
    def measurements_path(self) -> Path:
        """The measurements' path."""
        return self.path_of(self.measurements.path)

    def fingerprint(self, units: str | None = None, limits: str | None = None) -> str:
        """SHA-256 of what decides, beside the measurements, what is released; not of how it is checked."""
        settled = self.model_dump(mode="json", include={"projection": {"method", "weights"}}) | {"units": units}
        if limits is not None:
            settled["limits"] = limits
        return hashlib.sha256(json.dumps(settled, sort_keys=True).encode()).hexdigest()
