"""`genlock doctor`: examines a store, changes nothing, and says what to type."""
