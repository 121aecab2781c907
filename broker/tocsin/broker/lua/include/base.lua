-- What every script starts with: names for what the includes provide, the clock, records,
-- refusals, the journal. A script's own body runs in `main` (see `finish`), checks before writes.

local timer, seat, lease, mail, dead, reading = {}, {}, {}, {}, {}, {}
local tasks, requests, reminders, asks, attendance = {}, {}, {}, {}, {}
local sweep, text, forget, causes, loops, room = {}, {}, {}, {}, {}, {}
local mend, mend_herd, mend_mail, mend_indexes, outbox, arrivals, ties = {}, {}, {}, {}, {}, {}, {}
local delegation, plans = {}, {}
local turns, endings, hosts = {}, {}, {}

-- An include is run when something of it is first used: most runs of a script use few, and making
-- all functions of all includes anew each time would cost more than what the script does.
local unused = {
  __index = function(include, name)
    setmetatable(include, nil)
    include[1]()
    return include[name]
  end,
}

local FOREVER = 9000000000000000   -- the lease of an instance under a manual clock, in ms

-- Hash -> table; fields that are not there are nil.
local function read(name)
  local flat, record = redis.call('HGETALL', name), {}
  for i = 1, #flat, 2 do record[flat[i]] = flat[i + 1] end
  return record
end

-- The given fields of a hash as a table; those that are not there are nil.
local function pick(name, fields)
  local values, record = redis.call('HMGET', name, unpack(fields)), {}
  for i, field in ipairs(fields) do record[field] = values[i] or nil end
  return record
end

-- Time, read once. `wall` is the server's own clock in ms, kept from ever going back by what the
-- partition remembers; `now` is the fleet's: the same, a scaled one, or the number a test gave.
local now, wall, moved, factor, clock_offset, manual, alerting
do
  local time = redis.call('TIME')
  local known = redis.call('HMGET', partition, 'last', 'offset', 'alerting')
  local last = tonumber(known[1]) or 0
  clock_offset, alerting = tonumber(known[2]) or 0, tonumber(known[3]) or 0
  wall = time[1] * 1000 + math.floor(time[2] / 1000) + clock_offset
  moved = wall ~= last
  if wall < last then
    clock_offset = clock_offset + last - wall
    wall = last
  end
  now, factor = wall, 1
  local given = string.match(args.clock, '^manual:(%d+)$')
  local base, speed = string.match(args.clock, '^scaled:(%d+):(.+)$')
  if given then
    now, manual = tonumber(given), true
  elseif base then
    factor = tonumber(speed)
    now = math.floor(tonumber(base) + (wall - base) * factor)
  end
end

local leave   -- what a refusal leaves behind, if anything: a function, called when all checks are over

-- Ends the script without a write. The sentence says what was refused, why, and what to do.
local function refuse(code, ...)
  error({ refused = { 'refused', code, table.concat({ ... }) } })
end

local herd = {}   -- of the herd's record what this script names as `herd.<field>`, once it is read
local unemployed = {}   -- agents that were found to have no runner, by name
local me = {}     -- of the calling agent's record what `seat.agent` reads; `turn`, if a turn's token proves it

-- Reads it. What a version of before did not write yet is as it is by default.
local function load_herd()
  herd = pick(key.herd(), herd_fields)
  if not herd.state then return end
  for field, value in pairs(herd_defaults) do
    if herd[field] == nil then herd[field] = value end
  end
end

-- What was raised, as text.
local function words(raised)
  if type(raised) == 'table' then return raised.err or cjson.encode(raised) end
  return tostring(raised)
end

-- One line of the herd's history. Texts are cut: it is for people to follow, not a store.
local function journal(event, fields)
  for name, value in pairs(fields) do
    if type(value) == 'string' then fields[name] = string.sub(value, 1, 4000) end
  end
  fields.event, fields.at = event, now
  redis.call('XADD', key.journal(), 'MAXLEN', '~', herd.journal_limit or 10000, '*',
    'e', cjson.encode(fields))
end

-- Something a human should hear of: told once for each event and `what`, by whichever scheduler takes
-- it (`alerts_take`). Costs nothing unless one has asked for alerts lately. At most 1,000 wait in a
-- partition; above that the oldest is dropped and counted.
local function alert(event, what, fields)
  if alerting < wall then return end
  local id = 'alert_' .. event .. '_' .. args.herd .. '_' .. what
  if redis.call('ZADD', key.alerts(), 'NX', wall, id) == 0 then return end
  for name, value in pairs(fields) do
    if type(value) == 'string' then fields[name] = string.sub(value, 1, 1000) end
  end
  fields.event, fields.herd, fields.at = event, args.herd, now
  redis.call('HSET', key.alerted(), id, cjson.encode(fields))
  if redis.call('ZCARD', key.alerts()) > 1000 then
    local oldest = redis.call('ZPOPMIN', key.alerts())[1]
    redis.call('HDEL', key.alerted(), oldest, oldest .. ':tries')
    redis.call('HINCRBY', partition, 'alerts_dropped', 1)
  end
  redis.call('PUBLISH', doorbell, 'alert')
end

-- 'task_x' -> 'x': ids that the broker makes are derived, so that a repeat makes the same one.
local function bare(id) return string.match(id, '^%a+_(.+)$') end

-- Writes the partition's clock and the herd's place among the timers; called last.
local function commit()
  if moved then redis.call('HSET', partition, 'last', wall, 'offset', clock_offset) end
  if rawget(timer, 'commit') then timer.commit() end
end

-- Runs the script's body. A refusal is an answer; anything else that was raised stays an error.
-- Attempts to act as somebody else are kept in the journal of the herd they were made in.
local function finish(main)
  local ok, answer = pcall(main)
  if ok then
    commit()
    return answer
  end
  if type(answer) ~= 'table' or not answer.refused then
    pcall(commit)   -- for what was written before it broke
    error(answer)
  end
  if leave then leave() end
  local code = answer.refused[2]
  if herd.state and (code == 'unauthorized' or code == 'forbidden') then
    journal('refused', { agent = args.agent, code = code, detail = answer.refused[3] })
  end
  return answer.refused
end
