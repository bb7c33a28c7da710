#!lua
-- One project's changes: each that still fits is written with its events.
-- KEYS: the store, the project.
-- ARGV: the store's birth; 1 if the replication id is watched; how many replicas there must be; the epoch in which this was decided, or
--       nothing; the feed's mark; then for each change: field, head that was read or nothing, new head, index entries, body, version of
--       the first event, number of events, the events.

local store, project = KEYS[1], KEYS[2]

-- A server with another replication id was promoted or restarted: it may lack what was acknowledged. Nothing is written before the epoch
-- has risen (begin_epoch.lua), nor on what was decided before that.
local function trouble()
  local kept = redis.call('HMGET', store, 'birth', 'replid', 'epoch')
  if kept[1] ~= ARGV[1] then
    return {'gone'}
  end
  local needed = tonumber(ARGV[3])
  if ARGV[2] == '1' or needed > 0 then
    local info = redis.call('INFO', 'replication')
    local id = string.match(info, 'master_replid:(%x+)')
    if ARGV[2] == '1' and id ~= kept[2] then
      local now = redis.call('TIME')
      return {'moved', kept[2], id, kept[3], now[1], now[2]}
    end
    local _, online = string.gsub(info, 'state=online', '')
    if online < needed then
      return {'few', online}
    end
  end
  if ARGV[4] ~= '' and ARGV[4] ~= kept[3] then
    return {'raised'}
  end
  if redis.call('EXISTS', project .. ':m') == 0 then
    return {'new'}
  end
end

local found = trouble()
if found then
  return found
end

local changes, fields, at = {}, {}, 6
while at <= #ARGV do
  changes[#changes + 1] = at
  fields[#fields + 1] = ARGV[at]
  at = at + 7 + tonumber(ARGV[at + 6])
end

local heads = gathered(project .. ':h', fields)
local first = tonumber(redis.call('HGET', project .. ':m', 'head'))
local position, feed = first, project .. ':f'
local lost, records, bodies, added, removed = {}, {}, {}, {}, {}

local function move(old, packed)
  local before = {}
  if old then
    for _, entry in ipairs(entries_of(old)) do
      before[entry] = true
    end
  end
  for _, entry in ipairs(cmsgpack.unpack(packed)) do
    if before[entry] then
      before[entry] = nil
    else
      added[#added + 1] = 0
      added[#added + 1] = entry
    end
  end
  for entry in pairs(before) do
    removed[#removed + 1] = entry
  end
end

local function append(field, version, from, to)
  local places = project .. ':e:' .. field
  for number = from, to do
    position = position + 1
    redis.call('XADD', feed, string.format('%.0f-0', position), 'k', field, 'e', ARGV[number])
    redis.call('ZADD', places, version, position)
    version = version + 1
  end
end

for number, at in ipairs(changes) do
  local old, read = heads[number], ARGV[at + 1]
  local fits
  if read == '' then
    fits = not old
  else
    fits = old and string.sub(old, 1, #read) == read
  end
  if fits then
    move(old, ARGV[at + 3])
    records[#records + 1] = ARGV[at]
    records[#records + 1] = ARGV[at + 2] .. ARGV[at + 3]
    bodies[#bodies + 1] = ARGV[at]
    bodies[#bodies + 1] = ARGV[at + 4]
    append(ARGV[at], tonumber(ARGV[at + 5]), at + 7, at + 6 + tonumber(ARGV[at + 6]))
  else
    lost[#lost + 1] = number
  end
end

if #records > 0 then
  many('ZREM', project .. ':x', removed)
  many('ZADD', project .. ':x', added)
  many('HSET', project .. ':h', records)
  many('HSET', project .. ':b', bodies)
  redis.call('HSET', project .. ':m', 'head', string.format('%.0f', position))
  redis.call('PUBLISH', store .. ':moves', ARGV[5])
end
return {'done', first, unpack(lost)}
