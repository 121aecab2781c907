-- What `why` has to say of a task, a message and an agent: a row of facts each, with its timers; nil
-- if the caller may not look at it. `look(kind, id)` is told what it hangs on in turn.

-- A record as a list, its long texts cut: they are for people to recognise.
local function flat(record)
  local list = {}
  for field, value in pairs(record) do
    list[#list + 1] = field
    list[#list + 1] = string.sub(value, 1, 400)
  end
  return list
end

-- Those of these timers that are set: kind, when, kind, when.
local function due(...)
  local list = {}
  for _, member in ipairs({ ... }) do
    local at = redis.call('ZSCORE', key.due(), member)
    if at then
      list[#list + 1] = string.match(member, '^%d:(%a+)')
      list[#list + 1] = at
    end
  end
  return list
end

function causes.task(id, look)
  local task = pick(key.task(id), { 'state', 'agent', 'generation', 'description', 'created_at',
    'started_at', 'waiting_since', 'settled_at', 'summary', 'error', 'override', 'question' })
  if not task.state or not tasks.visible(task) then return end
  local open = redis.call('ZRANGE', key.questions(id), 0, 9)
  local place = redis.call('ZRANK', key.queue(task.agent), id)
  look('message', open[1] or task.question)
  look('message', 'msg_task_' .. bare(id))
  look('agent', task.agent)
  if place then look('task', redis.call('ZRANGE', key.workload(task.agent), 0, 0)[1]) end
  return { 'task', id, flat(task), due('1:deadline:' .. id), open, place or '' }
end

function causes.message(id, look)
  local m = pick(key.message(id), { 'kind', 'sender', 'sender_generation', 'to', 'was', 'seq', 'task',
    'state', 'by', 'body', 'wakes', 'accepted_at', 'shown_at', 'taken_at', 'handled_at', 'ended_at',
    'comes_at', 'attempts', 'error', 'reason', 'request', 'opened_at', 'closed_at', 'answered_by',
    'reply', 'reply_to', 'silence', 'damaged', 'forwarded_at', 'there', 'there_at' })
  for field, value in pairs(m.kind and read(key.message(id)) or {}) do
    if string.find(field, '^wake:') then m[field] = value end
  end
  local task, episode = string.match(id, '^msg_reminder_(.+)_(%d+)$')
  if not m.kind and task then   -- nobody was handed it yet: its marker is all there is
    task = 'task_' .. task
    look('task', task)
    local fired = redis.call('GET', key.reminded(task, episode))
    if fired then
      m = { kind = 'reminder', sender = '@tocsin', to = 'parent', task = task, state = 'accepted',
        wakes = '0', accepted_at = fired, attempts = '0' }
    end
  end
  if not m.kind and m.state ~= 'dead' or not seat.may_read(m) then return end
  if m.state == 'dead' then m.obstacle = dead.obstacle(id, m) end
  look('task', m.task)
  look('message', m.reply)
  local other = outbox.split(m.to)
  if not other then look('agent', m.to) end
  local holder = m.state == 'taken' and redis.call('ZSCORE', key.instances(m.to), m.by)
  m.holder = holder and tonumber(holder) > wall and 'alive' or ''
  local timers = due('2:reply:' .. id, '3:ceiling:' .. id, '4:window:' .. id, '6:deliver:' .. id,
    '7:attend:' .. (m.reply_to or id))
  local at = m.state == 'outgoing' and outbox.planned(other)
  if at then
    timers[#timers + 1] = 'forward'
    timers[#timers + 1] = at
  end
  return { 'message', id, flat(m), timers }
end

function causes.agent(name, look)
  local agent = pick(key.agent(name), { 'state', 'status', 'active_at', 'away_since', 'closed_at', 'turn_state',
    'turn', 'turn_reason', 'turn_since' })
  if not agent.state then return end
  local live = lease.live(name)
  local last = redis.call('ZRANGE', key.instances(name), -1, -1, 'WITHSCORES')[2]
  if last and not live then agent.away_since = string.format('%.0f', timer.on_wall(tonumber(last))) end
  if live then agent.away_since = nil end
  local asking = redis.call('ZRANGE', key.asking(name), 0, 9)
  local holds = redis.call('ZRANGE', key.workload(name), 0, 9)
  look('message', asking[1])
  look('task', holds[1])
  return { 'agent', name, flat(agent), due('6:turn:' .. name, '7:lease:' .. name, '8:away:' .. name), live and 1 or 0,
    holds, redis.call('ZCARD', key.queue(name)), asking, mail.unread(name) }
end
