"""Registers ``DataFrame.md``."""
