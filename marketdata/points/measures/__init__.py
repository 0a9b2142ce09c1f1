"""The measures of books; each is one decorated function in a module named for what it measures."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from marketdata.points.measures.registry import MEASURES, Measure, Values, units_of

__all__ = ["MEASURES", "Measure", "Values", "units_of"]

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
