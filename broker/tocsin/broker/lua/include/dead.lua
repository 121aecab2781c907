-- Dead letters: mail that nobody will be given any more, kept with the reason until it is replayed
-- or dropped, or `dead_retention` has passed. In its record: `reason`, `error` (the last words of
-- what failed on it), `ended_at`; `deaths`, how often; `damaged` 1 where it is no whole envelope.

-- The id of the record that a stream entry names; nil if it is no entry of ours.
function dead.named(fields)
  if fields[1] == 'm' then return fields[2] end
  local task = fields[1] == 'r' and bare(fields[2])
  return task and fields[4] and reminders.id(fields[2], fields[4]) or nil
end

-- That id and its record (a reminder that nobody was handed yet has none: an empty one); else why
-- there is none: somebody else wrote the entry, or the record was deleted or written over.
function dead.known(fields)
  local id = dead.named(fields)
  if not id then return 'it is no entry that Tocsin wrote' end
  local ok, m = pcall(read, key.message(id))
  if not ok then return 'the record of ' .. id .. ' was written over' end
  if fields[1] == 'm' and not m.state then return 'the record of ' .. id .. ' is gone' end
  return id, m
end

-- What a record lacks that was found by way of an agent's stream; nil if it is whole.
function dead.flaw(m, agent, delivery)
  for _, field in ipairs({ 'kind', 'sender', 'wakes', 'task' }) do
    if not m[field] then return 'its record has no ' .. field end
  end
  for _, field in ipairs({ 'attempts', 'accepted_at' }) do
    if not tonumber(m[field]) then return 'its record has no number of ' .. field end
  end
  if m.to ~= agent or m.delivery ~= delivery then return 'its record is of another inbox' end
end

-- Gives a flawed record what it takes to bury it.
function dead.mend(id, m, agent, delivery)
  m.to, m.delivery, m.damaged = agent, delivery, 1
  m.sender, m.task, m.wakes = m.sender or '', m.task or '', m.wakes or '0'
  m.attempts, m.accepted_at = tonumber(m.attempts) or 0, tonumber(m.accepted_at) or now
  for _, field in ipairs({ 'to', 'delivery', 'damaged', 'sender', 'task', 'wakes', 'attempts', 'accepted_at' }) do
    redis.call('HSET', key.message(id), field, m[field])
  end
  return m
end

-- The parent is told, and woken; also whoever sent it, quietly, if that is somebody else and still
-- there. `asker_told`: the end of its question says so already.
local function tell(id, m, reason, asker_told)
  local nth = redis.call('HGET', key.message(id), 'deaths')
  local about = bare(id) .. (nth ~= '1' and '_' .. nth or '')
  local task = m.task ~= '' and m.task or nil
  local data = { about = 'dead_letter', message = id, kind = m.kind, sender = m.sender,
    recipient = m.to, reason = reason, obstacle = dead.obstacle(id, m) }
  alert('dead_letter', about, { message = id, message_kind = m.kind, sender = m.sender, recipient = m.to,
    task = m.task, reason = reason })
  -- What Tocsin told the parent and it could not handle is not told again: that would never end.
  if m.sender ~= '@tocsin' or m.to ~= 'parent' then
    mail.notice('msg_dead_' .. about, 'parent', true, nil, task, data)
  end
  if not m.sender or m.sender == 'parent' or asker_told then return end
  if redis.call('HGET', key.agent(m.sender), 'generation') ~= m.sender_generation then return end
  data.about = 'undelivered'
  mail.notice('msg_undelivered_' .. about, m.sender, false, nil, task, data)
end

-- How long its record stays; a question's at least as long as tasks do, as that of any other.
function dead.kept(m)
  return math.max(tonumber(herd.dead_retention), m.request and tonumber(herd.task_retention) or 0)
end

local function keep(id, m)
  redis.call('ZADD', key.dead(), now, id)
  mail.retire(id, dead.kept(m))
end

-- Ends an envelope, and what hung on it moves on. `silent` when the reason is the recipient's own
-- end, of which everybody concerned is told once elsewhere.
function dead.bury(id, m, reason, silent)
  local asks_for_reply = m.request == 'open'
  mail.unlist(id, m)
  redis.call('HSET', key.message(id), 'state', 'dead', 'reason', reason, 'ended_at', now,
    'entry', '', 'by', '')
  redis.call('HINCRBY', key.message(id), 'deaths', 1)
  journal('dead', { message = id, kind = m.kind, sender = m.sender, recipient = m.to, reason = reason })
  keep(id, m)
  outbox.news(id, m, 'dead')
  if silent then return end
  if id == 'msg_task_' .. (bare(m.task) or '') then
    tasks.settle(m.task, 'failed', { error = 'its envelope ' .. id .. ' was dead-lettered: ' ..
      reason, wakes = true })
  elseif asks_for_reply then
    requests.close(id, m, 'dead', 'the question was dead-lettered: ' .. reason)
    keep(id, m)   -- closing set an earlier end
  end
  tell(id, m, reason, asks_for_reply)
end

-- What stands in a stream and is no mail: a dead letter of its own, with what stood there.
function dead.stray(agent, delivery, entry, fields, why, silent)
  redis.pcall('XACK', mail.stream(agent, delivery), 'agent', entry)
  redis.call('XDEL', mail.stream(agent, delivery), entry)
  if fields[1] == 'm' then
    redis.call('ZREM', key.waking(agent), fields[2])
    if redis.call('TYPE', key.message(fields[2])).ok ~= 'hash' then redis.call('DEL', key.message(fields[2])) end
  end
  local id = 'msg_stray_' .. redis.call('HINCRBY', key.herd(), 'seq', 1)
  local text, limit = cjson.encode(fields), tonumber(herd.envelope_limit)
  if #text > limit then text = string.sub(text, 1, limit) .. ' ... cut, of ' .. #text .. ' bytes' end
  local m = { to = agent, task = '' }
  redis.call('HSET', key.message(id), 'to', agent, 'state', 'dead', 'reason', 'it cannot be read: ' .. why,
    'error', why, 'attempts', 0, 'ended_at', now, 'deaths', 1, 'damaged', 1, 'body', text)
  journal('dead', { message = id, recipient = agent, reason = why })
  keep(id, m)
  if not silent then tell(id, m, 'it cannot be read: ' .. why) end
end

-- Mail that cannot be read: no other try would read it, so it is buried at once.
function dead.spoilt(agent, delivery, entry, fields, why)
  local id, m = dead.known(fields)
  if not m or m.entry ~= entry then return dead.stray(agent, delivery, entry, fields, why) end
  m = dead.mend(id, m, agent, delivery)
  redis.call('HSET', key.message(id), 'error', why)
  local ok, broke = pcall(dead.bury, id, m, 'it cannot be read: ' .. why)
  if not ok then   -- what hung on it is damaged, too
    journal('set_aside', { message = id, error = words(broke) })
  end
end

-- One more failed attempt: again, after `delay`, until the herd's `max_attempts`.
function dead.failed(id, m, reason, delay)
  if mail.pointless(m) then return mail.hand_back(id, m) end
  local attempts = redis.call('HINCRBY', key.message(id), 'attempts', 1)
  redis.call('HSET', key.message(id), 'error', reason)
  if attempts >= tonumber(herd.max_attempts) then
    dead.bury(id, m, 'failed ' .. attempts .. ' times, last: ' .. reason)
  else
    mail.hand_back(id, m, delay, reason)
  end
end

-- What an instance held when it left or died comes back; a death counts as an attempt.
function dead.returned(agent, delivery, entry, fields, died)
  local stream = mail.stream(agent, delivery)
  if not fields then   -- withdrawn meanwhile
    redis.call('XACK', stream, 'agent', entry)
    return
  end
  local id, m = dead.known(fields)
  if not m then return dead.stray(agent, delivery, entry, fields, id) end
  if m.entry ~= entry then   -- not this delivery's any more
    redis.call('XACK', stream, 'agent', entry)
    redis.call('XDEL', stream, entry)
    return
  end
  local flaw = dead.flaw(m, agent, delivery)
  if flaw then return dead.spoilt(agent, delivery, entry, fields, flaw) end
  if not died then return mail.hand_back(id, m) end
  dead.failed(id, m, 'instance ' .. died .. ' died holding it')
end

-- The record of a dead letter that the parent names, or a refusal that says what it is instead.
function dead.need(id, m)
  if not m.state then
    refuse('unknown_message', 'there is no message ', id, " in herd '", args.herd, "'; its record may have ended")
  end
  if m.state ~= 'dead' then refuse('wrong_state', 'message ', id, ' is ', m.state, ', not a dead letter') end
end

-- Why a dead letter cannot be replayed, and what to do instead; nil if it can. What has ended stays
-- ended: a settled task, a question that somebody answered or gave up.
function dead.obstacle(id, m)
  if not (m.to and m.task and m.sender) or m.damaged then return 'it is no whole message; drop it, and have it sent anew' end
  local to = pick(key.agent(m.to), { 'state', 'born' })
  if to.state ~= 'open' or tonumber(m.seq or 0) <= tonumber(to.born or 0) then
    return "agent '" .. m.to .. "' as it was then was closed; send it anew to somebody, or drop it"
  end
  local state = m.task ~= '' and redis.call('HGET', key.task(m.task), 'state')
  local over = m.task ~= '' and not tasks.is_open({ state = state })
  if m.kind == 'task' and over then
    return 'task ' .. m.task .. ' is ' .. (state or 'gone') .. ', and what is settled stays so; ' ..
      'delegate a new task that continues it (continues=, `tocsin task retry`), and drop this'
  end
  if m.kind ~= 'request' then return end
  if over then return 'its task ' .. m.task .. ' is ' .. (state or 'gone') .. '; ask anew, or drop it' end
  if m.reply or not requests.answerable(m) then
    return 'the question is ' .. (m.reply and 'answered' or m.request) .. '; ask anew, or drop it'
  end
  local asker = pick(key.agent(m.sender), { 'state', 'generation' })
  if asker.state ~= 'open' or asker.generation ~= m.sender_generation then
    return "agent '" .. m.sender .. "' that asked it was closed; drop it"
  end
end
