#!lua flags=no-writes
-- How many records lie in a range, by the name that their entries have in common: nothing is looked at but the ends.
-- KEYS: the project. ARGV: packed: where the range begins, where it ends, 1 if by name.
local from, last, by_name = unpack(cmsgpack.unpack(ARGV[1]), 1, 3)
local index = KEYS[1] .. ':x'
if by_name ~= 1 then
  return {'', redis.call('ZLEXCOUNT', index, from, last)}
end
local answer = {}
while true do
  local first = redis.call('ZRANGEBYLEX', index, from, last, 'LIMIT', 0, 1)[1]
  if not first then
    return answer
  end
  local group = string.match(first, '^[^%z]*%z[^%z]*')
  answer[#answer + 1] = name_in(first)
  answer[#answer + 1] = redis.call('ZLEXCOUNT', index, '[' .. group .. '\0', '(' .. group .. '\1')
  from = '[' .. group .. '\1'
end
