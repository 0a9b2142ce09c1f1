"""A progress bar over minutes of history."""

from __future__ import annotations

from typing import Any, Self


class Bar:
    """One bar for a whole run, or nothing where none is to be shown."""

    def __init__(self, total: int, *, shown: bool) -> None:
        self._bar: Any = None
        if shown and total:
            from tqdm import tqdm

            self._bar = tqdm(total=total, unit="min", unit_scale=True, leave=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def update(self, count: int) -> None:
        """So many minutes more are done."""
        if self._bar is not None:
            self._bar.update(count)

    def say(self, text: str) -> None:
        """What is being fetched."""
        if self._bar is not None:
            self._bar.set_description(text, refresh=False)
