"""What an archive holds of each market: intervals with a state, their table, and what to ask for again."""
