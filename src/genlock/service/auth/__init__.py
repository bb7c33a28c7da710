"""Authenticates callers and decides which projects and sessions they may act for."""
