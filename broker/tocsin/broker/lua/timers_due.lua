-- The herds of a partition whose timers are due, those first that were neither served nor due for
-- longest, each with how late its oldest timer is; and when the next herd is due.
-- keys: partition
-- args: clock herd limit
-- answers: due <real ms until the next timer, or empty> <herd, real ms it is late> ...
-- moves: none
-- memory: allow-oom

local herds = redis.call('ZRANGEBYSCORE', key.timers(), '-inf', now, 'LIMIT', 0, args.limit)
local next = redis.call('ZRANGEBYSCORE', key.timers(), '(' .. string.format('%.0f', now), '+inf',
  'WITHSCORES', 'LIMIT', 0, 1)
local wait = next[2] and string.format('%.0f', math.ceil((tonumber(next[2]) - now) / factor)) or ''
local answer = { 'due', wait }
for _, name in ipairs(herds) do
  args.herd = name
  local oldest = redis.pcall('ZRANGE', key.due(), 0, 0, 'WITHSCORES')   -- one that is damaged: 0
  local late = tonumber(oldest[2]) and math.max(0, now - tonumber(oldest[2])) / factor or 0
  answer[#answer + 1] = { name, string.format('%.0f', late) }
end
return answer
