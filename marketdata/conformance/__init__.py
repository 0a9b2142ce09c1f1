"""How a service behaves where the interface leaves a choice: what `client.verify` does."""
