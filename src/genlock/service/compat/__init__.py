"""The other documents' HTTP interface under /api: SC's seven endpoints, its sessions' summary, and DDB's two.

It acts on one project, on the named session's claim at its current generation, and answers in SC's words.

routes.py      where what is found, which role it needs, what it takes and answers
messages.py    requests and answers, by the document's names
codes.py       which of SC's codes an outcome is
config.py      SC's `claimConfig`
health.py      healthy, warning, expiring, stale, expired or orphaned
records.py     what is read for it, a few records at once
history.py     the last claims of every session
claims.py      claim, release, heartbeat
looking.py     what is in flight, and who does what
endpoint.py    from a request to its answer
events.py      the stream of its events
"""
