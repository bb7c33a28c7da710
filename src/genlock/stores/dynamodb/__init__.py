"""The store in one DynamoDB table."""

import boto3  # noqa: F401 - before all that it brings along: where the driver is missing, this is the name to say

from genlock.stores.dynamodb.store import DynamoDBStore as DynamoDBStore
from genlock.stores.dynamodb.table import create_table as create_table
