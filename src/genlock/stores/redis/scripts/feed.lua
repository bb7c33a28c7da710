#!lua flags=no-writes
-- Events of a project's feed after a position. KEYS: the store, the project. ARGV: the position, how many.
return {
  redis.call('HMGET', KEYS[1], 'birth', 'epoch'),
  redis.call('HMGET', KEYS[2] .. ':m', 'head', 'purged_to', 'purges'),
  redis.call('XRANGE', KEYS[2] .. ':f', '(' .. ARGV[1] .. '-0', '+', 'COUNT', ARGV[2]),
}
