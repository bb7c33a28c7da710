#!lua flags=no-writes
-- Records of several projects, the time, and what the store is, of one instant.
-- KEYS: the store, the projects. ARGV: for each project how many fields, and the fields.
local answer = {redis.call('HMGET', KEYS[1], 'birth', 'epoch'), redis.call('TIME')}
local at = 1
for number = 2, #KEYS do
  local fields = {}
  for place = at + 1, at + tonumber(ARGV[at]) do
    fields[#fields + 1] = ARGV[place]
  end
  at = at + 1 + #fields
  answer[#answer + 1] = gathered(KEYS[number] .. ':h', fields)
  answer[#answer + 1] = gathered(KEYS[number] .. ':b', fields)
end
return answer
