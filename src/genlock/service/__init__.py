"""The service offers the coordinator over HTTP. It translates and decides nothing.

`app` chooses the part that answers a request. `host` runs a service from its settings to its end.
All parts share a `context`.
"""
