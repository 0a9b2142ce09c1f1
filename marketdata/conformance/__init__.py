"""The behaviour of a service where the interface leaves a choice: `client.verify`."""
