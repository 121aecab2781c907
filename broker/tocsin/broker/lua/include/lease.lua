-- Presence: an instance lives while its lease does. An instance whose lease ended is suspect; at
-- a second look, at least a grace after the first, it is gone and what it held is handed back.
-- So a machine that slept gets its grace to renew before anything of its counts as lost. If it fell
-- asleep between the looks, the grace begins again, once: who is awake looks at every half lease.

function lease.live(agent)
  local last = redis.call('ZRANGE', key.instances(agent), -1, -1, 'WITHSCORES')
  return last[2] ~= nil and tonumber(last[2]) > wall
end

-- Looks again when the earliest lease of the agent ends.
function lease.watch(agent)
  local first = redis.call('ZRANGE', key.instances(agent), 0, 0, 'WITHSCORES')
  if first[2] and tonumber(first[2]) < FOREVER then
    timer.set('7:lease:' .. agent, timer.on_wall(tonumber(first[2]) + 1))
  end
end

-- The notice of an absence is timed from the later of its start and the first task it holds up; more
-- work does not put it off.
function lease.absent(agent)
  local record = read(key.agent(agent))
  -- One with a runner has no process between its turns.
  if agent == 'parent' or record.state ~= 'open' or record.away_told or record.turn_state then return end
  if redis.call('ZCARD', key.workload(agent)) == 0 then return end
  if redis.call('ZSCORE', key.due(), '8:away:' .. agent) then return end
  timer.set('8:away:' .. agent, now + tonumber(herd.away_after))
end

-- Takes up or renews the calling instance's lease, which a shorter setting cuts at no renewal. An
-- agent that was away is back: a parent is reminded now of what went stale meanwhile.
function lease.touch()
  local was_live = lease.live(args.agent)
  local ends = manual and FOREVER or wall + tonumber(herd.lease)
  local new = redis.call('ZADD', key.instances(args.agent), 'GT', ends, args.instance)
  redis.call('HDEL', key.agent(args.agent), 'suspect:' .. args.instance)
  if new == 1 and not manual then lease.watch(args.agent) end
  if was_live then return end
  redis.call('HDEL', key.agent(args.agent), 'away_told', 'away_since')
  timer.clear('8:away:' .. args.agent)
  journal('present', { agent = args.agent, instance = args.instance })
  if args.agent == 'parent' then reminders.fire(100) end
end

-- Notes which Tocsin the calling instance runs, for whoever looks after an upgrade; and, if its process
-- renews its lease (else `loops` is empty), that it did now, and how the process's loops are.
function lease.runs(version, loops)
  local noted = { 'version:' .. args.instance, version }
  if loops ~= '' and not manual then
    noted[3], noted[4] = 'loops:' .. args.instance, string.format('%.0f', wall) .. ' ' .. loops
  end
  redis.call('HSET', key.agent(args.agent), unpack(noted))
end

-- Hands back what an instance holds: `counted` when it died holding it. False if more is left.
local function release(agent, instance, counted)
  local left = 100
  for _, delivery in ipairs({ 'steer', 'follow_up' }) do
    local stream = mail.stream(agent, delivery)
    local held = redis.pcall('XPENDING', stream, 'agent', '-', '+', left, instance)
    if held.err then held = {} end
    for _, pending in ipairs(held) do
      local entry = redis.call('XRANGE', stream, pending[1], pending[1])[1]
      local fields = entry and entry[2]
      local ok, broke = pcall(dead.returned, agent, delivery, pending[1], fields, counted and instance)
      if not ok then   -- it holds up neither what else was held nor who serves the agent now
        dead.spoilt(agent, delivery, pending[1], fields, words(broke))
      end
    end
    left = left - #held
    if left <= 0 then return false end
    redis.pcall('XGROUP', 'DELCONSUMER', stream, 'agent', instance)
  end
  return true
end

-- Removes an instance and whatever it held. False if it held more than one pass gives back.
function lease.gone(agent, instance, counted)
  endings.gone(agent, instance, counted)
  if not release(agent, instance, counted) then return false end
  redis.call('ZREM', key.instances(agent), instance)
  redis.call('HDEL', key.agent(agent), 'suspect:' .. instance, 'turns:' .. instance,
    'version:' .. instance, 'loops:' .. instance, 'waits:' .. instance)
  journal(counted and 'lost' or 'left', { agent = agent, instance = instance })
  for _, ask in ipairs(redis.call('ZRANGE', key.answers(agent), 0, 999)) do
    if redis.call('EXISTS', key.message(ask)) == 0 then redis.call('ZREM', key.answers(agent), ask) end
    attendance.look(ask)
  end
  for _, ask in ipairs(redis.call('ZRANGE', key.asking(agent), 0, 999)) do
    if redis.call('HGET', key.message(ask), 'probing') == '1' then asks.refresh(ask) end
  end
  if not lease.live(agent) then
    redis.call('HSET', key.agent(agent), 'away_since', now)
    lease.absent(agent)
  end
  if agent == 'parent' then reminders.arm() end
  return true
end

-- One look at an agent's instances whose lease has ended.
function lease.look(agent)
  local ended = redis.call('ZRANGEBYSCORE', key.instances(agent), '-inf', wall, 'LIMIT', 0, 20)
  if #ended == 0 then   -- all renewed: the timer that called for this look needs a successor
    if not redis.call('ZSCORE', key.due(), '7:lease:' .. agent) then lease.watch(agent) end
    return
  end
  local grace, again = tonumber(herd.grace), nil
  for _, instance in ipairs(ended) do
    local suspect = 'suspect:' .. instance
    local first, once = string.match(redis.call('HGET', key.agent(agent), suspect) or '', '^(%d+)(%a*)')
    local since = tonumber(first)
    if not since or once == '' and wall - since > grace + tonumber(herd.lease) then
      redis.call('HSET', key.agent(agent), suspect, wall .. (since and 'again' or ''))
      since = wall
    end
    if wall - since < grace then
      again = math.min(again or since + grace, since + grace)
    elseif not lease.gone(agent, instance, true) then
      again = wall
    end
  end
  if again then
    timer.set('7:lease:' .. agent, timer.on_wall(again))
  else
    lease.watch(agent)
  end
end

-- One quiet notice per absence of an agent that holds an open task. How many were sent: 0 or 1.
function lease.away(agent)
  local record = read(key.agent(agent))
  if record.state ~= 'open' or record.away_told or record.turn_state or lease.live(agent) then return 0 end
  local task = redis.call('ZRANGE', key.workload(agent), 0, 0)[1]
  if not task then return 0 end
  local nth = redis.call('HINCRBY', key.agent(agent), 'absences', 1)
  redis.call('HSET', key.agent(agent), 'away_told', now)
  alert('agent_away', agent .. '_' .. string.format('%.0f', now),
    { agent = agent, task = task, away_ms = tonumber(herd.away_after) })
  mail.notice('msg_away_' .. agent .. '_' .. record.generation .. '_' .. nth, 'parent', false, nil,
    task, { about = 'agent_away', agent = agent, task = task, away_after_ms = tonumber(herd.away_after) })
  return 1
end
