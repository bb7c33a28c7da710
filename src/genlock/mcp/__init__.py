"""The operations as tools of the Model Context Protocol, over stdio and as a route of the service.

`protocol` turns a message into a reply or into work to do, and does neither I/O nor decisions.
`tools` has the tools' arguments and schemas, `scripts` has the operations that each tool calls, and
`texts` formats the answers. A script yields calls of `genlock.wire.operations`, and its runner
performs them: `stdio` by a coordinator in a thread, `route` by the service, with its permissions.
"""
