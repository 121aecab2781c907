-- Back-pressure: an agent with too much unread takes no new work until it has read some.

-- Who is behind with an agent's mail: its live processes and what each has in hand, or nobody.
local function behind(agent)
  local held, live, last = {}, {}, nil
  for _, stream in ipairs({ key.inbox(agent), key.steer(agent) }) do
    local pending = redis.pcall('XPENDING', stream, 'agent')
    for _, each in ipairs(not pending.err and pending[4] or {}) do
      held[each[1]] = (held[each[1]] or 0) + each[2]
    end
  end
  local instances = redis.call('ZREVRANGE', key.instances(agent), 0, 9, 'WITHSCORES')
  for i = 1, #instances, 2 do
    last = last or tonumber(instances[i + 1])
    if tonumber(instances[i + 1]) > wall then
      live[#live + 1] = instances[i] .. ' has ' .. (held[instances[i]] or 0) .. ' in hand'
    end
  end
  if #live > 0 then return 'its processes are behind: ' .. table.concat(live, ', ') end
  if last then return 'no process of it has been alive for ' .. text.span(wall - last) end
  local times = redis.call('HMGET', key.agent(agent), 'away_since', 'registered_at')
  if times[1] then return 'no process of it has been alive for ' .. text.span(now - times[1]) end
  return 'no process has served it since it was registered, ' .. text.span(now - (times[2] or now)) .. ' ago'
end

-- Refuses new work for an agent that has too much unread; replies and settlements always fit.
-- Whoever `waits` for room is rung when there may be some.
function room.check(to, waits)
  local limit = tonumber(herd.inbox_limit)
  if redis.call('XLEN', key.inbox(to)) + redis.call('XLEN', key.steer(to)) < limit then return end
  local unread = mail.unread(to)
  if unread < limit then return end
  if waits then leave = function() redis.call('HSET', key.agent(to), 'awaited', 1) end end
  refuse('queue_full', "agent '", to, "' has ", unread, ' unread messages and the limit is ', limit,
    '; ', behind(to), '; wait until it catches up (wait=, --wait), or close it')
end

-- The caller has read some of its mail: who waits for room looks again.
function room.made()
  if not me.awaited then return end
  redis.call('HDEL', key.agent(args.agent), 'awaited')
  mail.ring(args.agent, 'room')
end
