"""The remote client: the coordinator's operations by HTTP, with the same names, results and errors.

operations.py    every operation as a script
asking.py        the script of one call: ask, and ask again after what may pass
patience.py      what may pass, how long to wait for it, and what to say in the end
requests.py      a call as a request
replies.py       a response as an answer or an error
scripts.py       the two drivers of scripts
addresses.py     where it is asked: one address, or several on one store
link.py          the address, who speaks, and the connections; a forked child has its own
watching.py      a project's events as they come; sse.py how they are written, ears.py how a waiting thread is let go

It sees the wire and the core, nothing else: what is decided is decided by the service.
"""
