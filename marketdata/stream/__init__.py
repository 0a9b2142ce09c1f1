"""Streams of venues: how they are subscribed, a recorder of their books, and a mirror that plays an archive."""
