-- How mail is handed over, taken or shown: each envelope true at this moment.

local function drop(stream, entry)
  redis.pcall('XACK', stream, 'agent', entry)
  redis.call('XDEL', stream, entry)
end

local OVER = 'it is not true any more'

-- A reminder that was never handed over has no record to be taken back.
local function unsaid(id) journal('withdrawn', { message = id, kind = 'reminder', reason = OVER }) end

-- The record behind a stream entry, made ready to be handed over as `state` ('taken', 'shown');
-- nil if there is nothing to hand over any more, in which case the entry is gone too.
local function prepare(delivery, entry, fields, state)
  local id, m = dead.known(fields)
  if not m then error({ err = id }) end
  if fields[1] == 'r' and not m.state then
    local task, episode = fields[2], fields[4]
    if not reminders.holds(task, episode) then
      unsaid(id)
      return drop(mail.stream(args.agent, delivery), entry)
    end
    m = { kind = 'reminder', sender = '@tocsin', to = args.agent, delivery = delivery, wakes = '0',
      task = task, episode = episode, seq = fields[6] or 0, attempts = 0, entry = entry,
      accepted_at = redis.call('GET', key.reminded(task, episode)) or now }
  end
  if m.entry ~= entry then   -- withdrawn, or there by another delivery
    return drop(mail.stream(args.agent, delivery), entry)
  end
  local flaw = dead.flaw(m, args.agent, delivery)
  if flaw then error({ err = flaw }) end
  -- The group forgot that a living instance has it: that one keeps it.
  if state == 'taken' and m.state == 'taken' and m.by ~= args.instance and
    redis.call('ZSCORE', key.instances(args.agent), m.by) then
    redis.call('XCLAIM', mail.stream(args.agent, delivery), 'agent', m.by, 0, entry, 'JUSTID')
    return nil
  end
  local over = false
  if m.kind == 'reminder' then
    local data = reminders.data(m.task, m.episode)
    over = not data
    m.data = data and reminders.encode(data)
  elseif m.kind == 'task' then
    m.body = redis.call('HGET', key.task(m.task), 'description')
    over = not m.body   -- held until long after its task had settled
    if not over then tasks.start(m.task) end
  end
  if over then
    if m.state then
      mail.take_back(id, m, OVER)
    else
      unsaid(id)
      mail.unlist(id, m)
    end
    return nil
  end
  m.id, m.state = id, state
  return m
end

-- The same; what cannot be read is a dead letter at once, and holds up nothing beside it.
function reading.prepare(delivery, entry, fields, state)
  local ok, m = pcall(prepare, delivery, entry, fields, state)
  if ok then return m end
  dead.spoilt(args.agent, delivery, entry, fields, words(m))
  return nil
end

local ENVELOPE = { 'id', 'kind', 'sender', 'to', 'task', 'thread', 'reply_to', 'delivery', 'wakes',
  'body', 'data', 'accepted_at', 'late', 'attempts', 'entry' }

-- Marks the record as handed over and returns its envelope as a flat list of fields and values.
-- Of showings the first counts, of takings the last.
function reading.mark(m, turn)
  local when, who, first = 'shown_at', 'shown_by', not m.shown_at
  if m.state == 'taken' then
    when, who, first = 'taken_at', 'taken_by', m.by ~= args.instance or not m.taken_at
    m.by = args.instance
  end
  if first then m[when], m[who] = now, args.instance end
  if m.kind == 'reminder' then
    redis.call('HSET', key.message(m.id), 'kind', m.kind, 'sender', m.sender, 'to', m.to,
      'delivery', m.delivery, 'wakes', 0, 'task', m.task, 'episode', m.episode, 'seq', m.seq,
      'attempts', m.attempts, 'accepted_at', m.accepted_at, 'entry', m.entry, 'data', m.data)
    -- The record of a reminder may end before its wait does.
    redis.call('HSET', key.task(m.task), 'reminder_read', m.episode)
  end
  if m.state == 'taken' then
    redis.call('HSET', key.message(m.id), 'state', m.state, 'by', m.by, when, m[when], who, m[who],
      'turn', turn or m.turn or '')
    if m.wakes == '1' then redis.call('ZREM', key.waking(args.agent), m.id) end
  else
    redis.call('HSET', key.message(m.id), 'state', m.state, 'by', m.by or '', when, m[when], who, m[who])
    if me.turn then redis.call('HSET', key.message(m.id), 'shown_turn', me.turn) end
  end
  if m.tried then hosts.confirm(m) end
  local flat = {}
  for _, field in ipairs(ENVELOPE) do
    if m[field] then
      flat[#flat + 1] = field
      flat[#flat + 1] = tostring(m[field])
    end
  end
  return flat
end

-- Steer overtakes; otherwise as accepted, which the sequence number tells and stream ids do not.
function reading.sort(batch)
  table.sort(batch, function(a, b)
    if a.delivery ~= b.delivery then return a.delivery == 'steer' end
    return (tonumber(a.seq) or 0) < (tonumber(b.seq) or 0)
  end)
end

-- Counts what a turn is handed, in characters.
function reading.count(batch)
  if not me.turn then return end
  local characters = 0
  for _, m in ipairs(batch) do
    local _, found = string.gsub(m.body or m.data or '', '[^\128-\191]', '')
    characters = characters + found
  end
  redis.call('HINCRBY', key.agent(args.agent), 'characters', characters)
end

-- What a take answers with: the mail in order, and whether more that wakes is unread.
function reading.answer(batch, turn)
  local answer = { 'mail', 0 }
  reading.sort(batch)
  reading.count(batch)
  for _, m in ipairs(batch) do answer[#answer + 1] = reading.mark(m, turn) end
  answer[2] = redis.call('ZCARD', key.waking(args.agent)) > 0 and 1 or 0
  return answer
end

-- What this instance took by a turn and still holds of it, among all that it holds.
function reading.again(turn)
  local batch = {}
  for _, delivery in ipairs({ 'steer', 'follow_up' }) do
    local stream, from, held = mail.stream(args.agent, delivery), '-', nil
    repeat
      held = redis.pcall('XPENDING', stream, 'agent', from, '+', 100, args.instance)
      if held.err then held = {} end
      for _, pending in ipairs(held) do
        from = '(' .. pending[1]
        local entry = redis.call('XRANGE', stream, pending[1], pending[1])[1]
        local id = entry and dead.named(entry[2])
        if id and redis.pcall('HGET', key.message(id), 'turn') == turn then
          local m = reading.prepare(delivery, entry[1], entry[2], 'taken')
          if m then batch[#batch + 1] = m end
        end
      end
    until #held < 100
  end
  return batch
end

-- The record of mail that the caller may ack or give back; else a word: 'handled', 'withdrawn' or
-- 'over' (it was rerouted), 'fenced' when it went to another instance meanwhile. `entry`: the
-- delivery it was taken by, or '' where the agent names a message it was shown.
function reading.held(id, entry)
  local m = mail.head(id)
  if not m.kind and entry ~= '' then return 'fenced' end   -- another handled it, and it was forgotten
  mail.need(id, m)
  if m.to ~= args.agent then
    if seat.was_meant(m) then return 'over' end
    refuse('forbidden', 'message ', id, " was sent to agent '", m.to, "', not to you")
  end
  if m.state == 'handled' and entry ~= '' and m.by ~= args.instance then return 'fenced' end
  if m.state == 'handled' or m.state == 'withdrawn' then return m.state end
  if entry ~= '' then return m.entry == entry and m or 'fenced' end
  if m.state == 'taken' then return m.by == args.instance and m or 'fenced' end
  if m.state ~= 'shown' then
    refuse('wrong_state', 'message ', id, ' is ', m.state, '; only mail that was taken or shown can be acked')
  end
  return m
end

local unseen = false   -- whether some of what is unread was not looked at

-- How many of the next entries of a stream, of at most so many, come before one that keeps failing.
function reading.sound(stream, count)
  local entries = redis.call('XRANGE', stream, '(' .. (mail.passed(stream) or '0-0'), '+', 'COUNT', count)
  unseen = unseen or #entries == count
  for i, entry in ipairs(entries) do
    local m = entry[2][1] == 'm' and redis.pcall('HMGET', key.message(entry[2][2]), 'attempts', 'wakes') or {}
    if m[2] == '1' and mail.keeps_failing(m[1]) then
      unseen = true
      return i - 1
    end
  end
  return count
end

-- Nothing is looked for any more once nothing of it is left.
function reading.settle_failing()
  if not unseen and redis.call('ZCARD', key.delayed(args.agent)) == 0 then
    redis.call('HDEL', key.agent(args.agent), 'failing')
  end
end
