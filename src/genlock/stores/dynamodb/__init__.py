"""The store in one DynamoDB table."""

from genlock.stores.dynamodb.driver import require_driver

require_driver()

from genlock.stores.dynamodb.store import DynamoDBStore as DynamoDBStore  # noqa: E402
from genlock.stores.dynamodb.table import create_table as create_table  # noqa: E402
