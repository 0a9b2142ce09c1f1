"""The five bucket sizes of the service (interface 2.1)."""

from __future__ import annotations

from enum import StrEnum

from marketdata.errors import ConfigError

_SECONDS = {"1m": 60, "10m": 600, "1h": 3600, "6h": 21600, "1d": 86400}


class Resolution(StrEnum):
    """A bucket size; a bucket is ``floor(t / width) * width`` from the Unix epoch in UTC.

    Source: interface 2.1.

    Examples
    --------
    >>> Resolution.of("10m").seconds
    600
    """

    M1 = "1m"
    M10 = "10m"
    H1 = "1h"
    H6 = "6h"
    D1 = "1d"

    @property
    def seconds(self) -> int:
        """Width of the bucket [seconds]."""
        return _SECONDS[self.value]

    @property
    def micros(self) -> int:
        """Width of the bucket [microseconds]."""
        return _SECONDS[self.value] * 1_000_000

    @classmethod
    def of(cls, value: object) -> Resolution:
        """Read a resolution as a user writes it.

        Parameters
        ----------
        value : str or Resolution

        Returns
        -------
        Resolution

        Raises
        ------
        ConfigError
            If it is none of the five.

        Examples
        --------
        >>> Resolution.of("6h").micros
        21600000000
        """
        if isinstance(value, str):
            try:
                return cls(value)
            except ValueError:
                pass
        allowed = ", ".join(cls)
        raise ConfigError(f"does not exist; the service has {allowed}.", argument="resolution", value=value)
