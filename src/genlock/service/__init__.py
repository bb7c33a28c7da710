"""The service: the coordinator over HTTP. It translates, and decides nothing.

app.py         which part of the service answers a request
hosting.py     a service from its settings to its end
serving.py     starting and stopping it
addresses.py   where it listens, and who can reach it there
protocol.py    HTTP on one connection, with patience that ends
limits.py      how much one caller may ask, and one tenant have under way
logs.py        what is logged; logwriting.py how it gets to stderr
running.py     what all parts share: the coordinator, and who speaks
exchange.py    reading requests and writing answers
v1/            every operation, below /v1/{tenant}/{project}/
compat/        the session-claiming interface, below /api/
pages/         the status page, and whether all is well
access/        keys and roles
"""
