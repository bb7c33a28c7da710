"""Work products: drafts that agents write, and assets that acceptance promotes."""
