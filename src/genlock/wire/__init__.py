"""What client and service agree on. Both see this, and of the rest only the core.

calls.py      what every operation takes, and what it answers
answers.py    answers as JSON, both ways; plans.py those that are plans
routes.py     where each operation is found, and which role it needs
statuses.py   which reason and which error is which HTTP status
problems.py   refusals and errors as problem details, both ways
headers.py    the names of headers, and how identities travel in them
"""
