"""The service described by itself: an OpenAPI 3.1 document from the table of routes, and a page to read it.

fields.py      what a keyword may be: the bounds that the coordinator checks
schemas.py     calls and answers as JSON Schema
answers.py     which statuses an operation answers, and with what
examples.py    what a request and its answer look like
others.py      what is served beside the operations
compat.py      the interface under /api
document.py    all of it put together
page.py        the document as a page
serving.py     both over HTTP
"""
