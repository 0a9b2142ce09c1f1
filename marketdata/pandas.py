"""``import marketdata.pandas`` loads pandas, whose frames have ``.md``."""

from __future__ import annotations

import pandas as pandas  # noqa: PLC0414 to be loaded
