-- The herds of a partition whose timers are due, longest overdue first, and when the next one is.
-- keys: partition
-- args: clock herd limit
-- answers: due <real ms until the next timer, or empty> <herd> ...
-- moves: none
-- memory: allow-oom

local herds = redis.call('ZRANGEBYSCORE', key.timers(), '-inf', now, 'LIMIT', 0, args.limit)
local next = redis.call('ZRANGEBYSCORE', key.timers(), '(' .. string.format('%.0f', now), '+inf',
  'WITHSCORES', 'LIMIT', 0, 1)
local wait = next[2] and string.format('%.0f', math.ceil((tonumber(next[2]) - now) / factor)) or ''
return { 'due', wait, unpack(herds) }
