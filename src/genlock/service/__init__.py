"""The service: the coordinator over HTTP. It translates and decides nothing."""
