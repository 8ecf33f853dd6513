"""The scripts in Lua that Redis runs for a store.

Redis runs a script without any other command in between, and passes it to its replicas and its file as one transaction.
There is no other atomicity: what a script wrote before an error stays. So each script first finds out whether it can do
its work, and its first write does no harm: whatever Redis refuses (no memory left, too few replicas, this server is a
replica), it refuses there.

Keys, each with the store's prefix and a colon in front:

=====================  =================================================================================
``<space>``            a hash, of ``Key.text`` → value
``<space>:order``      a sorted set of all scores 0: the order, escaped; two zeros; ``Key.text``
``.store``             a hash: ``format``; ``version``; ``writer``, the token of the writer; ``lists``, see below
``.lock``              that token, for as long as its owner is alive
``.spaces``            a set of the spaces that have entries
``.staged``            a hash: ``blocks``, how many the open transaction has staged; and its spaces
``.staged:<space>``    a hash: text → ``P``, length of the order, order, value; or ``D`` and the order
=====================  =================================================================================

Redis throws whole keys away when it is full and its ``maxmemory-policy`` allows it, and the policy may be changed at
any time. A table without its hash would pass for an empty one. So a space is listed in ``.spaces`` exactly if it has
entries, and its hash has as many entries as its sorted set. Every script that reads or writes a space checks that
first. ``lists`` is the number of listed spaces, because ``.spaces`` may be thrown away, too.
"""

from __future__ import annotations

from typing import Final

_INTACT: Final = r"""
local function all_listed()
  local count = redis.call('HGET', prefix .. ':.store', 'lists')
  local spaces = prefix .. ':.spaces'
  if count and tonumber(count) ~= redis.call('SCARD', spaces) then error('EVICTED ' .. spaces) end
end

local function intact(space)
  local key = prefix .. ':' .. space
  local entries = redis.call('HLEN', key)
  local is_listed = redis.call('SISMEMBER', prefix .. ':.spaces', space) == 1
  if entries ~= redis.call('ZCARD', key .. ':order') or (entries > 0) ~= is_listed then error('EVICTED ' .. key) end
end
"""

READ: Final = rf"""
local prefix = ARGV[1]
{_INTACT}

local function values(key, texts, from, to)
  local found = {{}}
  for first = from, to, 1000 do
    local part = redis.call('HMGET', key, unpack(texts, first, math.min(first + 999, to)))
    for i = 1, #part do found[first - from + i] = part[i] end
  end
  return found
end

local function scan(key, first, stop, limit, backwards)
  local command = 'ZRANGEBYLEX'
  if backwards == '1' then command, first, stop = 'ZREVRANGEBYLEX', stop, first end
  local members, texts = redis.call(command, key .. ':order', first, stop, 'LIMIT', 0, limit), {{}}
  for i, member in ipairs(members) do
    local _, last = string.find(member, '\0\0', 1, true)
    texts[i] = string.sub(member, last + 1)
  end
  return {{members, values(key, texts, 1, #texts)}}
end

local answers, at = {{}}, 2
all_listed()
while at <= #ARGV do
  local what, key, count = ARGV[at], prefix .. ':' .. ARGV[at + 1], tonumber(ARGV[at + 2])
  local answer
  intact(ARGV[at + 1])
  at = at + 3
  if what == 'get' then
    answer = values(key, ARGV, at, at + count - 1)
  elseif what == 'count' then
    answer = redis.call('HLEN', key)
  else
    answer = scan(key, unpack(ARGV, at, at + 3))
  end
  answers[#answers + 1] = answer
  at = at + count
end
return {{redis.call('HGET', prefix .. ':.store', 'version'), answers}}
"""
"""Arguments: the prefix; then for each question ``get``, ``count`` or ``scan``, its space, the number of arguments that
follow, and the arguments. Returns the version, and an answer to each question."""

_LEFTOVERS: Final = r"""
local function forget_staged()
  for name, _ in pairs(staged_spaces()) do redis.call('UNLINK', prefix .. ':.staged:' .. name) end
  redis.call('UNLINK', prefix .. ':.staged')
end
"""

_STAGED: Final = r"""
local function staged_spaces()
  local flat, spaces = redis.call('HGETALL', prefix .. ':.staged'), {}
  for i = 1, #flat, 2 do
    if flat[i] ~= 'blocks' then spaces[string.sub(flat[i], 7)] = flat[i + 1] end
  end
  return spaces
end
"""

LOCK: Final = rf"""
local prefix, token, lease_ms, format = unpack(ARGV)
local store, lock = prefix .. ':.store', prefix .. ':.lock'
{_STAGED}{_LEFTOVERS}
local holder = redis.call('GET', lock)
if holder and holder ~= token then return {{0, redis.call('PTTL', lock)}} end
local found = redis.call('HMGET', store, 'format', 'version', 'lists')
if found[1] and found[1] ~= format then return {{-1, found[1]}} end
local spaces = prefix .. ':.spaces'
if found[3] and tonumber(found[3]) ~= redis.call('SCARD', spaces) then return {{-2, spaces}} end
for _, space in ipairs(redis.call('SMEMBERS', spaces)) do
  local key = prefix .. ':' .. space
  local entries, places = redis.call('HLEN', key), redis.call('ZCARD', key .. ':order')
  if entries ~= places or (entries == 0 and found[3]) then return {{-2, key}} end
  if entries == 0 then redis.call('SREM', spaces, space) end
end
redis.call('SET', lock, token, 'PX', lease_ms)
local lists = redis.call('SCARD', spaces)
redis.call('HSET', store, 'format', format, 'version', found[2] or '0', 'writer', token, 'lists', lists)
forget_staged()
local now = redis.call('TIME')
return {{1, found[2] or '0', now[1], now[2]}}
"""
"""Arguments: prefix, token, lease in ms, format. Returns 1, the version and the time; or 0 and for how many ms another
process still holds the lock; or -1 and the store's format; or -2 and a key that has lost entries."""

RENEW: Final = r"""
local prefix, token, lease_ms = unpack(ARGV)
if redis.call('HGET', prefix .. ':.store', 'writer') ~= token then return 0 end
redis.call('SET', prefix .. ':.lock', token, 'PX', lease_ms)
return 1
"""
"""Arguments: prefix, token, lease in ms. Returns 0 if another process writes."""

UNLOCK: Final = rf"""
local prefix, token = unpack(ARGV)
{_STAGED}{_LEFTOVERS}
if redis.call('HGET', prefix .. ':.store', 'writer') ~= token then return end
redis.call('HDEL', prefix .. ':.store', 'writer')
redis.call('DEL', prefix .. ':.lock')
forget_staged()
"""
"""Arguments: prefix, token."""

_WRITER: Final = r"""
local prefix, token, lease_ms, expected, blocks = unpack(ARGV, 1, 5)
local store, lock, staged = prefix .. ':.store', prefix .. ':.lock', prefix .. ':.staged'
local found = redis.call('HMGET', store, 'writer', 'version')
if found[1] ~= token then
  -- Nobody writes without a lock. If there is none, Redis has lost the later writers, and this name is an old one.
  if found[1] and redis.call('EXISTS', lock) == 1 then return 'another' end
  return 'forgotten'
end
if found[2] ~= expected then return 'moved' end
if blocks ~= '0' and redis.call('HGET', staged, 'blocks') ~= blocks then return 'incomplete' end
"""

_BLOCK: Final = r"""
local block = ARGV[6]
-- Calls of_space(name, is_dropped), and then the three functions that it returns.
local function each_change(of_space)
  local at = 1
  while at <= #block do
    local space, dropped, puts, deletes, text, order, value
    space, dropped, puts, deletes, at = struct.unpack('>I4c0BI4I4', block, at)
    local put, delete, finish = of_space(space, dropped == 1)
    for _ = 1, puts do
      text, order, value, at = struct.unpack('>I4c0I4c0I4c0', block, at)
      put(text, order, value)
    end
    for _ = 1, deletes do
      text, order, at = struct.unpack('>I4c0I4c0', block, at)
      delete(text, order)
    end
    finish()
  end
end
"""

STAGE: Final = rf"""
{_WRITER}{_STAGED}{_LEFTOVERS}{_BLOCK}
redis.call('SET', lock, token, 'PX', lease_ms)
if blocks == '0' then forget_staged() end
redis.call('HINCRBY', staged, 'blocks', 1)
each_change(function(space, is_dropped)
  local key, field, args, count = staged .. ':' .. space, 'space:' .. space, {{}}, 0
  if is_dropped then
    redis.call('UNLINK', key)
    redis.call('HSET', staged, field, 'dropped')
  else
    redis.call('HSETNX', staged, field, '')
  end
  local function finish()
    if count > 0 then redis.call('HSET', key, unpack(args, 1, count)); count = 0 end
  end
  local function add(text, said)
    args[count + 1], args[count + 2] = text, said
    count = count + 2
    if count == 2000 then finish() end
  end
  local function put(text, order, value) add(text, 'P' .. struct.pack('>I4', #order) .. order .. value) end
  local function delete(text, order) add(text, 'D' .. order) end
  return put, delete, finish
end)
return 'done'
"""
"""Arguments: prefix, token, lease in ms, version before, blocks that were staged before, a block. Returns ``done``; or
``another`` (another process writes), ``forgotten`` (nobody does), ``moved`` (the store has another version) or
``incomplete`` (blocks were lost).

A block holds for each space: its name; 1 if the space is dropped first; the number of entries to write and of those to
delete; text, order and value of each entry to write; text and order of each to delete. Lengths and numbers take four
bytes."""

COMMIT: Final = rf"""
{_WRITER}{_STAGED}{_LEFTOVERS}{_BLOCK}{_INTACT}
local early = {{}}
if blocks ~= '0' then early = staged_spaces() end

local function nothing() end
local function must_be(kind, key)
  local is = redis.call('TYPE', key)['ok']
  if is ~= kind and is ~= 'none' then error('WRONGTYPE ' .. key .. ' is a ' .. is .. ', not a ' .. kind) end
end
local function check(space)
  must_be('hash', prefix .. ':' .. space)
  must_be('zset', prefix .. ':' .. space .. ':order')
  intact(space)
  return nothing, nothing, nothing
end
all_listed()
each_change(check)
for space, _ in pairs(early) do check(space) end

redis.call('SET', lock, token, 'PX', lease_ms)

local function drop(space)
  redis.call('UNLINK', prefix .. ':' .. space, prefix .. ':' .. space .. ':order')
  redis.call('SREM', prefix .. ':.spaces', space)
end

-- Takes entries one by one, and hands them to Redis five hundred or a thousand at a time.
local function writer(space)
  local key, members = prefix .. ':' .. space, prefix .. ':' .. space .. ':order'
  local rows, places, count, texts, gone, less = {{}}, {{}}, 0, {{}}, {{}}, 0
  local is_known = false
  local function put_now()
    if count == 0 then return end
    if not is_known then redis.call('SADD', prefix .. ':.spaces', space); is_known = true end
    local new = redis.call('HSET', key, unpack(rows, 1, count))
    -- If no text is new, no order is new either.
    if new > 0 then redis.call('ZADD', members, unpack(places, 1, count)) end
    count = 0
  end
  local function delete_now()
    if less == 0 then return end
    local deleted = redis.call('HDEL', key, unpack(texts, 1, less))
    if deleted > 0 then redis.call('ZREM', members, unpack(gone, 1, less)) end
    less = 0
  end
  local function put(text, order, value)
    rows[count + 1], rows[count + 2] = text, value
    places[count + 1], places[count + 2] = 0, order .. '\0\0' .. text
    count = count + 2
    if count == 1000 then put_now() end
  end
  local function delete(text, order)
    less = less + 1
    texts[less], gone[less] = text, order .. '\0\0' .. text
    if less == 1000 then delete_now() end
  end
  local function finish()
    put_now()
    delete_now()
    if redis.call('HLEN', key) == 0 then redis.call('SREM', prefix .. ':.spaces', space) end
  end
  return put, delete, finish
end

local function apply_staged(space)
  local put, delete, finish = writer(space)
  local cursor = '0'
  repeat
    local page = redis.call('HSCAN', staged .. ':' .. space, cursor, 'COUNT', 1000)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      local text, said = page[2][i], page[2][i + 1]
      if string.sub(said, 1, 1) == 'P' then
        local size = struct.unpack('>I4', said, 2)
        put(text, string.sub(said, 6, 5 + size), string.sub(said, 6 + size))
      else
        delete(text, string.sub(said, 2))
      end
    end
  until cursor == '0'
  finish()
end

each_change(function(space, is_dropped)
  if is_dropped then
    drop(space)
    early[space] = nil
  end
  return nothing, nothing, nothing
end)
for space, how in pairs(early) do
  if how == 'dropped' then drop(space) end
  apply_staged(space)
end
each_change(writer)
forget_staged()
redis.call('HSET', store, 'version', ARGV[7], 'lists', redis.call('SCARD', prefix .. ':.spaces'))
return 'done'
"""
"""Arguments: those of ``STAGE``, then the new version. Returns the same as ``STAGE``."""
