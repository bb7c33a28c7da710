"""The queries that the coordinator, the command line, HTTP, the pages and doctor share.

A read takes a `Reader` and answers with decoded records or with a result type. It decides nothing
and writes nothing. `Coordinator.reader` gives the reader of a coordinator's store; doctor, which
looks at stores that no coordinator has open, makes a `StoreReader`.
"""
