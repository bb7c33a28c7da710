#!lua
-- A project that is listed already comes to be, empty. KEYS: the project.
redis.call('HSETNX', KEYS[1] .. ':m', 'head', '0')
redis.call('HSETNX', KEYS[1] .. ':m', 'purged_to', '0')
redis.call('HSETNX', KEYS[1] .. ':m', 'purges', '0')
