"""The protocol between client and service. Both import it; it imports only the core.

operations.py   the table of operations: call, route, role, errors answers.py      answers as JSON,
both ways problems.py     the HTTP status of each reason and error; refusals and errors as problem
details headers.py      the names of headers, and how identities travel in them
"""
