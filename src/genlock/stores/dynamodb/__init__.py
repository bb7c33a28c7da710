"""A store in one DynamoDB table."""

import boto3  # noqa: F401

from genlock.stores.dynamodb.store import DynamoDBStore as DynamoDBStore
from genlock.stores.dynamodb.table import create_table as create_table
