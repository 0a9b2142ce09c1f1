from __future__ import annotations

from hypothesis import HealthCheck, settings

pytest_plugins = ["marketdata.testing.fixtures"]

# Frame libraries take their first seconds to load; a deadline per example would only measure the machine.
settings.register_profile(
    "house", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.register_profile("soak", settings.get_profile("house"), max_examples=2_000)
settings.load_profile("house")
