-- The instances of a herd, so many agents at a time: what each runs, how long ago its process renewed
-- its lease, and how it said that its loops are (`turning`, or what keeps one from it; both empty if
-- it does not renew). One whose lease has ended is among them, if it was renewed, until it is gone.
-- keys: partition
-- args: clock herd start limit
-- answers: instances <where to go on, or empty> <length of a lease, ms> <how often it is renewed, ms> <agent, instance, version, ms since its renewal, loops> ...
-- moves: none
-- memory: allow-oom

load_herd()
local start, limit = tonumber(args.start), tonumber(args.limit)
local agents = redis.call('ZRANGE', key.agents(), start, start + limit - 1)
local answer = { 'instances', #agents == limit and start + limit or '', herd.lease or '',
  herd.lease_renewal or '' }
for _, agent in ipairs(agents) do
  local found = redis.call('ZREVRANGE', key.instances(agent), 0, 999, 'WITHSCORES')
  for i = 1, #found, 2 do
    local noted = redis.call('HMGET', key.agent(agent), 'version:' .. found[i], 'loops:' .. found[i])
    local at, loops = string.match(noted[2] or '', '^(%d+) (.*)$')
    if at or tonumber(found[i + 1]) > wall then
      answer[#answer + 1] = { agent, found[i], noted[1] or '',
        at and string.format('%.0f', wall - at) or '', loops or '' }
    end
  end
end
return answer
