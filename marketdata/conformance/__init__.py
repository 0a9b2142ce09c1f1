"""Which readings of the interface a service follows: what `client.verify` asks, predicts and reports."""
