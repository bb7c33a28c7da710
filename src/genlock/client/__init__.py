"""The coordinator's operations, results and errors over HTTP: the client of a service.

It sees `wire` and the core and nothing else: the service makes every decision. Each operation is
written once, as a generator with a synchronous and an asynchronous driver.
"""
