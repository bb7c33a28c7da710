"""The service measured from outside: the server on one core, the client on the other.

load.py      a client that costs little: many connections, requests that are prepared
alone.py     the event loop's share of a claim, without sockets and lane
serving.py   what is measured, each in a process of its own: the service, and a bare echo of the same bodies
rates.py     single claims beside the echo; batches beside the same batches in process; submissions
waiting.py   a thousand agents that wait; a commit's way to a hundred streams
history.py   the history of one task among a million events
"""
