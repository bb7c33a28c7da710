#!lua flags=no-writes
-- The first records of every pool: from pool to pool by leaps, whatever lies between.
-- KEYS: the project. ARGV: packed: kind, beginning of the wanted state's entry, how many of each.
local kind, state, most = unpack(cmsgpack.unpack(ARGV[1]), 1, 3)
local index = KEYS[1] .. ':x'
local prefix = 'p' .. kind .. '\0'
local last = '(p' .. kind .. '\1'
local found, fields = {}, {}

local function take(pool)
  local from, taken = '[' .. pool .. '\0', 0
  while taken < most do
    local entries = redis.call('ZRANGEBYLEX', index, from, '(' .. pool .. '\1', 'LIMIT', 0, most)
    local names = {}
    for at, entry in ipairs(entries) do
      names[at] = kind .. '\0' .. id_in(entry)
    end
    for at, head in ipairs(gathered(KEYS[1] .. ':h', names)) do
      if taken < most and head and (not state or string.sub(entries_of(head)[1], 1, #state) == state) then
        taken = taken + 1
        found[#found + 1] = {string.sub(entries[at], #pool + 2), head}
        fields[#fields + 1] = names[at]
      end
    end
    if #entries < most then
      return
    end
    from = '(' .. entries[#entries]
  end
end

local from = '[' .. prefix
while true do
  local first = redis.call('ZRANGEBYLEX', index, from, last, 'LIMIT', 0, 1)[1]
  if not first then
    break
  end
  local pool = prefix .. name_in(first)
  take(pool)
  from = '[' .. pool .. '\1'
end

local answer = {false}
for at, body in ipairs(gathered(KEYS[1] .. ':b', fields)) do
  answer[#answer + 1] = found[at][1]
  answer[#answer + 1] = found[at][2]
  answer[#answer + 1] = body
end
return answer
