"""The operations below /v1/{tenant}/{project}/, served from the table of routes."""
