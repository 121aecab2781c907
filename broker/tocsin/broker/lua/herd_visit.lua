-- Fires what is due in one herd, in due order, up to a limit; then the herd goes behind all that
-- were due before. A record that cannot be served is set aside and reported, and stops nothing.
-- keys: partition
-- args: clock herd limit
-- answers: visited <duty, count, ...>
-- moves: expired unanswered cancelled broke released
-- include: timer lease mail dead tasks requests reminders sweep forget asks attendance outbox ties plans turns endings

local duties = {
  close = function(id)
    if id == 'herd' then sweep.herd(100) else sweep.agent(id, 100) end
    return 'closings', 1
  end,
  deadline = function(id)
    tasks.settle(id, 'timed_out', { error = 'its deadline passed', tell = true })
    return 'task_deadlines', 1
  end,
  reply = function(id)
    requests.expire(id)
    return 'reply_deadlines', 1
  end,
  ceiling = function(id) return 'ceilings', asks.ceiling(id) end,
  window = function(id) return 'windows', asks.window(id) end,
  attend = function(id) return 'attendances', attendance.look(id) end,
  stale = function() return 'reminders', reminders.fire(tonumber(args.limit)) end,
  deliver = function(id)
    local m = read(key.message(id))
    if m.state ~= 'delayed' then return 'deliveries', 0 end
    redis.call('ZREM', key.delayed(m.to), id)
    mail.add(id, m.to, m.delivery, m.wakes == '1')
    return 'deliveries', 1
  end,
  turn = function(id) return 'turns', turns.due(id) end,
  lease = function(id)
    lease.look(id)
    return 'leases', 1
  end,
  away = function(id) return 'absences', lease.away(id) end,
  forget = function(id) return 'retention', forget.pass(id) end,
}

load_herd()
timer.visit()
if not herd.state then   -- nothing is left of it
  redis.call('DEL', key.due())
  return { 'visited' }
end
local function overdue()
  return redis.call('ZRANGEBYSCORE', key.due(), '-inf', now, 'LIMIT', 0, args.limit)
end
local members, moved = overdue(), false
for _, member in ipairs(members) do   -- so that a window fires in its place, or not yet
  local ask = string.match(member, '^4:window:(.+)$')
  if ask then
    pcall(asks.refresh, ask)
    moved = true
  end
end
local counts = {}
for _, member in ipairs(moved and overdue() or members) do
  if redis.call('ZREM', key.due(), member) == 1 then   -- not cleared by one that fired before it
    local kind, id = string.match(member, '^%d:(%a+):?(.*)$')
    local ok, duty, count = pcall(duties[kind] or error, id)
    if not ok then
      journal('set_aside', { timer = member, error = words(duty) })
      duty, count = 'set_aside', 1
    end
    if count > 0 then counts[duty] = (counts[duty] or 0) + count end
  end
end
local answer = { 'visited' }
for duty, count in pairs(counts) do
  answer[#answer + 1] = duty
  answer[#answer + 1] = count
end
return answer
