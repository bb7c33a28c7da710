"""What the service shows besides its operations."""
