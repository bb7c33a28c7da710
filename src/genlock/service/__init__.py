"""The service: the coordinator over HTTP. It translates, and decides nothing.

app.py         which part of the service answers a request
serving.py     starting and stopping it
running.py     what all parts share: the coordinator, and who speaks
exchange.py    reading requests and writing answers
v1/            every operation, below /v1/{tenant}/{project}/
compat/        the session-claiming interface, below /api/
pages/         the status page, and whether all is well
access/        keys and roles
"""
