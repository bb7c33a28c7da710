"""The status page, the sign-in page and the health checks."""
