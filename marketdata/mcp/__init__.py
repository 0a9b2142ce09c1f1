"""Read-only tools over an archive or a client, for programs that speak the Model Context Protocol."""
