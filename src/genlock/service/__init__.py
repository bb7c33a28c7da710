"""The service: the coordinator over HTTP. It translates, and decides nothing.

app.py         which part of the service answers a request
serving.py     starting and stopping it
running.py     what all parts share: the coordinator, and who speaks
exchange.py    reading requests and writing answers
v1/            every operation, below /v1/{tenant}/{project}/
access/        keys and roles
"""
