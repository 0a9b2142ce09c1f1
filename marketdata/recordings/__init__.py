# The package is also the function ``md.recordings``, which lists open sets, because both have this name.

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from marketdata.recordings.catalogue import recordings

__doc__ = str(recordings.__doc__)


class _Recordings(ModuleType):
    """The package, which can be called."""

    def __call__(self, *, frame: str = "pandas") -> Any:
        return recordings(frame=frame)


sys.modules[__name__].__class__ = _Recordings
