"""The queries that the coordinator, the command line, HTTP, the pages and doctor share.

A read takes a `Reader` and returns decoded records or a result type. It decides nothing and writes
nothing. `Coordinator.reader` is the reader of a coordinator's store; doctor, which examines stores
that no coordinator has open, creates a `StoreReader`.
"""
