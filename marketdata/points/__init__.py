"""Points of the service as numpy arrays, and every rule on them; no frame library is known here."""
