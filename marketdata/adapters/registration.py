"""Frames of pandas, polars and Dask have ``.md`` as soon as their library is imported, before or after marketdata.

Neither pandas nor polars looks for accessors of installed packages, so this waits for their import. It loads no library
and none of our functions: ``install`` is told how to load the accessor, once ``.md`` is used for the first time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # they take longer to import than this package
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType

Load = Callable[[], "type[Any]"]
FRAMES = {"pandas": ("DataFrame",), "polars": ("DataFrame", "LazyFrame"), "dask.dataframe": ("DataFrame",)}


class Methods:
    """``frame.md``: the accessor of a frame, and its class where there is no frame.

    It is made anew each time, because a frame that refers to its accessor would outlive its last use.
    """

    def __init__(self, accessor: Load) -> None:
        self._accessor = accessor

    def __get__(self, frame: Any, kind: type[Any]) -> Any:
        accessor = self._accessor()
        return accessor if frame is None else accessor(frame)


def register(library: ModuleType, accessor: Load) -> None:
    """Give the frames of a library their ``.md``, unless another package has taken that name."""
    for name in FRAMES[library.__name__]:
        kind = getattr(library, name)
        # A class looks .md up in its own dictionary, because asking the attribute would load the accessor.
        if not hasattr(kind, "md") or _is_same_kind(vars(kind).get("md"), Methods):
            kind.md = Methods(accessor)


class _Registering:
    """Loads a library as its own loader does, and registers it then."""

    def __init__(self, loader: Loader, accessor: Load) -> None:
        self._loader, self._accessor = loader, accessor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)  # such as get_filename, for who looks and does not import

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module keeps its own loader: resources of packages are read by it.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        register(module, self._accessor)


class _Finder:
    """Finds frame libraries alone, by asking the other finders."""

    def __init__(self, accessor: Load) -> None:
        self._accessor = accessor

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in FRAMES:
            return None
        others = (finder for finder in sys.meta_path if not _is_ours(finder) and hasattr(finder, "find_spec"))
        spec = next((spec for finder in others if (spec := finder.find_spec(fullname, path, target))), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Registering(spec.loader, self._accessor)  # type: ignore[assignment] # all that the import system calls
        return spec


def _is_same_kind(value: object, kind: type) -> bool:
    """Whether a value is of this class, or of the class of this name in another copy of this module."""
    return (type(value).__module__, type(value).__qualname__) == (kind.__module__, kind.__qualname__)


def _is_ours(finder: object) -> bool:
    return _is_same_kind(finder, _Finder)


def install(accessor: Load) -> None:
    """Register what is imported already, and each library that is imported later.

    A program that imports this package twice has two copies of this module, whose finders would ask each other for
    ever, so the finder of an older copy is removed.
    """
    sys.meta_path[:] = [_Finder(accessor), *(finder for finder in sys.meta_path if not _is_ours(finder))]
    for name in FRAMES.keys() & sys.modules.keys():
        register(import_module(name), accessor)  # which waits for an import in another thread
