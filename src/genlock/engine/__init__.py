"""The engine: commands go into lanes, and lanes introduce the core to the store. See `lane` and `batch`."""
