"""Coverage of each market: intervals with a state, their table, and the refetch policy."""
