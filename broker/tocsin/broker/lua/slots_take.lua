-- Gives slots back, and takes one for each turn that is to be launched, where its fleet, queue and account
-- have one. A turn that has one keeps it. Each ends by itself after so many ms.
-- keys: fleet
-- args: clock freed wanted
-- answers: slots <1 or what is full, for each wanted> <real ms until an account goes on, or empty>
-- moves: none
-- memory: allow-oom

local time = redis.call('TIME')
local wall = time[1] * 1000 + math.floor(time[2] / 1000)
local base, factor = string.match(args.clock, '^scaled:(%d+):(.+)$')
base, factor = tonumber(base or 0), tonumber(factor or 1)
local now = tonumber(string.match(args.clock, '^manual:(%d+)$')) or base + (wall - base) * factor
local limits = redis.call('HGETALL', KEYS[1])
for i = 1, #limits, 2 do limits[limits[i]] = limits[i + 1] end
local DEFAULT = { fleet = 200, queue = 100, account = 20 }

-- The sets that a slot is counted in, each with its name and how many may be.
local function counts(slot)
  local queue, account = string.match(slot, '^([^/]+)/([^/]+)/')
  local found = { { KEYS[1] .. ':slots', 'fleet', limits['slots'] or DEFAULT.fleet } }
  for _, each in ipairs({ { 'queue', queue }, { 'account', account } }) do
    if each[2] ~= '-' then
      local scope = each[1] .. '/' .. each[2]
      found[#found + 1] = { KEYS[1] .. ':slots:' .. scope, scope, limits['slots:' .. scope] or DEFAULT[each[1]] }
    end
  end
  return found
end

for _, slot in ipairs(cjson.decode(args.freed)) do
  for _, set in ipairs(counts(slot)) do redis.call('ZREM', set[1], slot) end
end
local answer, again = { 'slots' }, nil
for _, wanted in ipairs(cjson.decode(args.wanted)) do
  local slot, lasts = wanted[1], wanted[2]
  local sets, full = counts(slot), nil
  local paused = sets[3] and tonumber(limits['paused:' .. sets[3][2]]) or 0
  if paused > now then
    full, again = sets[3][2] .. ' is paused', math.min(again or paused - now, paused - now)
  elseif paused > 0 then
    redis.call('HDEL', KEYS[1], 'paused:' .. sets[3][2])
  end
  for _, set in ipairs(full and {} or sets) do
    redis.call('ZREMRANGEBYSCORE', set[1], '-inf', wall)
    if not redis.call('ZSCORE', set[1], slot) and redis.call('ZCARD', set[1]) >= tonumber(set[3]) then
      full = full or set[2] .. ' has all its ' .. set[3]
    end
  end
  for _, set in ipairs(full and {} or sets) do
    redis.call('ZADD', set[1], wall + lasts, slot)
    redis.call('PEXPIRE', set[1], math.max(redis.call('PTTL', set[1]), lasts))
  end
  answer[#answer + 1] = full or '1'
end
answer[#answer + 1] = again and string.format('%.0f', math.ceil(again / factor)) or ''
return answer
