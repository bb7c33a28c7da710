"""Every operation below /v1/{tenant}/{project}/, from the table of routes.

router.py      which route a path means
request.py     a call's keywords from path, query and body
endpoint.py    one operation: from a request to its answer
waiting.py     requests that wait for a task
large.py       bodies of megabytes
"""
