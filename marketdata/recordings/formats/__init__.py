"""The formats that are read: each module has a `FORMAT`, and is found by being here."""
