from archive.conftest import recorded, recorded_archive

__all__ = ["recorded", "recorded_archive"]
