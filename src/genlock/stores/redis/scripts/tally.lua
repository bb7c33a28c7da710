#!lua flags=no-writes
-- How many records of some ranges there are in a state, by state, pool or session: by looking at each, some at a time.
-- KEYS: the project. ARGV: packed: kind, beginning of the wanted state's entry, letter of the entry that has the value, after, how many
--       to look at, the range.
local kind, state, letter, after, budget, range = unpack(cmsgpack.unpack(ARGV[1]), 1, 6)
local entries = redis.call('ZRANGEBYLEX', KEYS[1] .. ':x', after and '(' .. range[1] .. after or '[' .. range[1], range[2], 'LIMIT', 0, budget)
local fields, ids, values = {}, {}, {}
for at, entry in ipairs(entries) do
  ids[at] = id_in(entry)
  fields[at] = kind .. '\0' .. ids[at]
end

-- The value that counts: nothing, if each counts alike; false, if this record has none.
local function value_of(names)
  if letter == '' then
    return ''
  end
  for _, entry in ipairs(names) do
    if string.sub(entry, 1, 1) == letter then
      return name_in(entry)
    end
  end
  return false
end

local answer = {#entries == budget and string.sub(entries[#entries], #range[1] + 1)}
for at, head in ipairs(gathered(KEYS[1] .. ':h', fields)) do
  local names = head and entries_of(head)
  if names and (not state or string.sub(names[1], 1, #state) == state) then
    local value = value_of(names)
    if value then
      answer[#answer + 1] = ids[at]
      answer[#answer + 1] = value
    end
  end
end
return answer
