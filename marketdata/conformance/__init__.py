"""Which readings of the interface a service follows: requests, predictions and report of `client.verify`."""
