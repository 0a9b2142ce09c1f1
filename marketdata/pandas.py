"""``import marketdata.pandas`` loads pandas, whose frames have ``.md``."""

from __future__ import annotations

import pandas as pd  # noqa: F401 to be loaded
