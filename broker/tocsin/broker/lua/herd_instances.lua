-- The live instances of a herd and what each runs, so many agents at a time.
-- keys: partition
-- args: clock herd start limit
-- answers: instances <where to go on, or empty> <agent, instance, version> ...
-- moves: none
-- memory: allow-oom

local start, limit = tonumber(args.start), tonumber(args.limit)
local agents = redis.call('ZRANGE', key.agents(), start, start + limit - 1)
local answer = { 'instances', #agents == limit and start + limit or '' }
for _, agent in ipairs(agents) do
  local live = redis.call('ZRANGEBYSCORE', key.instances(agent), '(' .. string.format('%.0f', wall),
    '+inf', 'LIMIT', 0, 1000)
  for _, instance in ipairs(live) do
    local version = redis.call('HGET', key.agent(agent), 'version:' .. instance)
    answer[#answer + 1] = { agent, instance, version or '' }
  end
end
return answer
