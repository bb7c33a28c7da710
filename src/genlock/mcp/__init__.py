"""The operations as tools of the Model Context Protocol, over stdio and as a route of the service.

`protocol` turns a message into a reply or into work to do, and does neither I/O nor decisions.
`tools` has the tools' arguments and schemas, `scripts` says which operations each tool asks for,
and `texts` writes the answers. A script yields calls of `genlock.wire.operations`; whoever runs it
performs them: `stdio` by a coordinator in a thread, `route` by the service, with its permissions.
"""
