"""No test asks the real hub, and none sees the caches and measurements of whoever runs it."""

from __future__ import annotations

import os
import tempfile

from hypothesis import HealthCheck, settings

HOME = tempfile.TemporaryDirectory(prefix="kvbudget-hub-", ignore_cleanup_errors=True)

for name in [name for name in os.environ if name.startswith(("HF_", "HUGGING", "TRANSFORMERS_OFFLINE"))]:
    del os.environ[name]
os.environ["HF_HOME"] = HOME.name
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["KVBUDGET_CALIBRATION"] = os.path.join(HOME.name, "calibration.json")  # noqa: PTH118

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
"""A loaded machine is no failure."""
