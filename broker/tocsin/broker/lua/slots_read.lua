-- The limits of turns at once, and how many there are: of the fleet, and of each queue and account that has
-- some or was given a limit or a pause.
-- keys: fleet
-- args: clock
-- answers: slots <scope, at once, limit, paused for so many ms> ...
-- moves: none
-- memory: allow-oom

local time = redis.call('TIME')
local wall = time[1] * 1000 + math.floor(time[2] / 1000)
local base, factor = string.match(args.clock, '^scaled:(%d+):(.+)$')
base, factor = tonumber(base or 0), tonumber(factor or 1)
local now = tonumber(string.match(args.clock, '^manual:(%d+)$')) or base + (wall - base) * factor
local record, scopes = redis.call('HGETALL', KEYS[1]), { fleet = true }
for i = 1, #record, 2 do
  record[record[i]] = record[i + 1]
  local scope = string.match(record[i], '^slots:(.+)$') or string.match(record[i], '^paused:(.+)$')
  if scope then scopes[scope] = true end
end
for _, slot in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1] .. ':slots', wall, '+inf')) do
  local queue, account = string.match(slot, '^([^/]+)/([^/]+)/')
  scopes['queue/' .. queue] = true
  if account ~= '-' then scopes['account/' .. account] = true end
end
local DEFAULT = { fleet = 200, queue = 100, account = 20 }
local answer = { 'slots' }
for scope in pairs(scopes) do
  local kind = string.match(scope, '^%a+')
  local name = scope == 'fleet' and '' or ':' .. scope
  answer[#answer + 1] = { scope, redis.call('ZCOUNT', KEYS[1] .. ':slots' .. name, wall, '+inf'),
    record['slots' .. name] or DEFAULT[kind], math.max(0, math.ceil((tonumber(record['paused:' .. scope]) or 0) - now)) }
end
return answer
