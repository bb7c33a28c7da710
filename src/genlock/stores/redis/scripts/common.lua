-- What several scripts need; it is put before each of them.

-- Lua cannot hand over more than some thousand arguments at once. The number is even, so that pairs stay together.
local MOST = 4000

local function many(command, key, arguments)
  for start = 1, #arguments, MOST do
    redis.call(command, key, unpack(arguments, start, math.min(start + MOST - 1, #arguments)))
  end
end

-- The values of these fields of a hash, false where there is none.
local function gathered(key, fields)
  if #fields <= MOST then
    return #fields == 0 and {} or redis.call('HMGET', key, unpack(fields))
  end
  local values = {}
  for start = 1, #fields, MOST do
    for _, value in ipairs(redis.call('HMGET', key, unpack(fields, start, math.min(start + MOST - 1, #fields)))) do
      values[#values + 1] = value
    end
  end
  return values
end

-- A record's head is the length of its digest, the digest and the version in eight bytes; its index entries follow.
local function entries_of(head)
  return cmsgpack.unpack(string.sub(head, string.byte(head, 1) + 10))
end

-- The name between the kind and what follows, as in "kind, zero, name, zero, id".
local function name_in(entry)
  return string.match(entry, '^[^%z]*%z([^%z]*)%z')
end

-- What follows the last zero byte. The pattern must begin at the beginning: without that it is tried at every place.
local function id_in(text)
  return string.match(text, '^.*%z(.*)$') or text
end
