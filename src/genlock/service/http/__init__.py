"""HTTP/1.1 on one connection, below any framework."""
