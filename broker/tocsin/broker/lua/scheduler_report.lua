-- Records what a scheduler says of itself, or that it ended; tells what all of them last said.
-- keys: schedulers
-- args: scheduler facts
-- answers: schedulers <name, age in ms, facts> ...
-- moves: none
-- memory: allow-oom

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if args.facts == '' then
  redis.call('HDEL', KEYS[1], args.scheduler)
else
  redis.call('HSET', KEYS[1], args.scheduler, string.format('%.0f', now) .. ' ' .. args.facts)
end
local answer, all = { 'schedulers' }, redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local at, facts = string.match(all[i + 1], '^(%d+) (.*)$')
  if now - at > 3600000 then
    redis.call('HDEL', KEYS[1], all[i])
  else
    answer[#answer + 1] = { all[i], now - at, facts }
  end
end
return answer
