"""A store in a MySQL or MariaDB database."""

from genlock.stores.mysql.store import MySQLStore as MySQLStore
