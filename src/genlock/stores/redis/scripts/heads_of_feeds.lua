#!lua flags=no-writes
-- Where feeds end. KEYS: the store, the projects.
local answer = {redis.call('HMGET', KEYS[1], 'birth', 'epoch')}
for number = 2, #KEYS do
  answer[number] = redis.call('HMGET', KEYS[number] .. ':m', 'head', 'purged_to', 'purges')
end
return answer
