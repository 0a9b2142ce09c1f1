"""Routes of the service, by group (interface section 4)."""
