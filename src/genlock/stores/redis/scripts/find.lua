#!lua flags=no-writes
-- One page of records whose index entries lie in one of several ranges, in the order of what follows the range's prefix.
-- KEYS: the project. ARGV: packed: kind, beginning of the wanted state's entry, after, how many, how many to look at, ranges.
local kind, state, after, limit, budget, ranges = unpack(cmsgpack.unpack(ARGV[1]), 1, 6)
local index, records, bodies = KEYS[1] .. ':x', KEYS[1] .. ':h', KEYS[1] .. ':b'

-- By bytes: Lua compares by the server's locale.
local function less(one, other)
  for at = 1, math.min(#one, #other) do
    local a, b = string.byte(one, at), string.byte(other, at)
    if a ~= b then
      return a < b
    end
  end
  return #one < #other
end

-- The next tails, at most so many; are these all? They are in order if there is one range, or if there may be more.
local function next_tails(most)
  local tails, seen, all = {}, {}, true
  for _, range in ipairs(ranges) do
    local from = after and '(' .. range[1] .. after or '[' .. range[1]
    local found = redis.call('ZRANGEBYLEX', index, from, range[2], 'LIMIT', 0, most)
    all = all and #found < most
    for _, entry in ipairs(found) do
      local tail = string.sub(entry, #range[1] + 1)
      if not seen[tail] then
        seen[tail] = true
        tails[#tails + 1] = tail
      end
    end
  end
  if #ranges > 1 and not all then
    table.sort(tails, less)
    for extra = #tails, most + 1, -1 do
      tails[extra] = nil
    end
  end
  return tails, all
end

local function fields_of(tails)
  local fields = {}
  for at, tail in ipairs(tails) do
    fields[at] = kind .. '\0' .. id_in(tail)
  end
  return fields
end

local found, seen, all, resume = {}, 0, false, false
while not all and #found < limit and seen < budget do
  local tails
  tails, all = next_tails(limit)
  seen = seen + #tails
  local heads = gathered(records, fields_of(tails))
  for at, tail in ipairs(tails) do
    local head = heads[at]
    if head and (not state or string.sub(entries_of(head)[1], 1, #state) == state) then
      found[#found + 1] = {tail, head}
    end
    after = tail
  end
end
if not all and #found < limit then
  resume = after
end

local tails = {}
for at, each in ipairs(found) do
  tails[at] = each[1]
end
local answer = {resume}
for at, body in ipairs(gathered(bodies, fields_of(tails))) do
  answer[#answer + 1] = found[at][1]
  answer[#answer + 1] = found[at][2]
  answer[#answer + 1] = body
end
return answer
