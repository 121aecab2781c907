-- Envelopes: a record each, and an entry in the recipient's stream while it is there to be read.
-- States of a record: queued (its task waits for a slot), held (an ask's answer, for who waits),
-- delayed, accepted, shown, taken; then handled, withdrawn or dead. (Those of mail to another herd,
-- `outbox` has.) `by` and `entry` are the fence: who holds it, from which delivery.
--
-- In this order:
--   to reach    stream, passed (how far it was handed over), ring (an agent's)
--   to send     add (its recipient can read it), record (it is there), send (both), notice (by Tocsin)
--   to find     need, readable (a record, or a refusal), repeated (of the same call), head (in short)
--   to end      unlist (off its stream), handled, retire (its record, later), take_back, withdraw (if unread)
--   to go back  pointless (no), hand_back (it comes again, perhaps later)
--   to count    unread
-- Handing over is `reading`, what nobody can or may handle any more is `dead`.

function mail.stream(agent, delivery)
  if delivery == 'steer' then return key.steer(agent) end
  return key.inbox(agent)
end

-- The last entry of a stream that was handed to somebody; nil if nothing ever was.
function mail.passed(stream)
  local groups = redis.pcall('XINFO', 'GROUPS', stream)
  for i = 1, #(groups[1] or {}), 2 do
    if groups[1][i] == 'last-delivered-id' then return groups[1][i + 1] end
  end
end

-- Rings an agent's bell: how many processes heard it; -1 on a Cluster (where scripts are sent with a
-- second key), because PUBLISH counts those of its own node, and it reaches those of all.
function mail.ring(agent, what)
  local heard = redis.call('PUBLISH', bell(agent), what or 'mail')
  return KEYS[2] and -1 or heard
end

-- Puts an envelope where its recipient reads it, and rings if it wakes. What its record has to know
-- of that, as a list of fields and values. For each path by which a recipient can be woken there is
-- a field `wake:<path>`: when it was last tried, and how many processes it reached.
local function place(id, to, delivery, wakes)
  local seq = redis.call('HINCRBY', key.herd(), 'seq', 1)
  local entry = redis.call('XADD', mail.stream(to, delivery), '*', 'm', id, 's', seq)
  if not wakes then
    mail.ring(to, 'arrived')   -- for who hands it to an agent at work; nobody is woken
    return { 'entry', entry, 'seq', seq }
  end
  redis.call('ZADD', key.waking(to), seq, id)
  local placed = { 'entry', entry, 'seq', seq, 'wake:bell', string.format('%.0f %d', now, mail.ring(to)) }
  local turn_state = not unemployed[to] and redis.call('HGET', key.agent(to), 'turn_state')
  if turn_state then   -- it has a runner
    turns.wake(to, turn_state)
    placed[#placed + 1], placed[#placed + 2] = 'wake:turn', string.format('%.0f -1', now)
  end
  return placed
end

-- Whether an envelope is tried alone from here on. That a process died with it in hand says little of
-- it; that it failed once more says something.
function mail.keeps_failing(attempts)
  return (tonumber(attempts or 0) or 0) >= math.max(1, math.min(2, tonumber(herd.max_attempts) - 1))
end

-- The same for an envelope that was recorded before.
function mail.add(id, to, delivery, wakes)
  redis.call('HSET', key.message(id), 'state', 'accepted', unpack(place(id, to, delivery, wakes)))
  if mail.keeps_failing(redis.call('HGET', key.message(id), 'attempts')) then
    redis.call('HSET', key.agent(to), 'failing', 1)   -- takings look for it from here on
  end
end

local OPTIONAL = { 'thread', 'reply_to', 'hops', 'body', 'data', 'late', 'request', 'opened_at',
  'deadline', 'trail' }

-- Records an envelope, accepted by this. `m`: id kind sender to delivery wakes, and as they apply
-- task digest sender_generation state and what is OPTIONAL, which is not there if it is empty;
-- `placed`: what `place` said.
function mail.record(m, placed)
  local fields = { 'kind', m.kind, 'sender', m.sender, 'to', m.to,
    'delivery', m.delivery or 'follow_up', 'wakes', m.wakes and 1 or 0, 'task', m.task or '',
    'digest', m.digest or '', 'sender_generation', m.sender_generation or 0,
    'state', m.state or 'accepted', 'accepted_at', now, 'attempts', 0 }
  for _, field in ipairs(OPTIONAL) do
    if m[field] and m[field] ~= '' then
      fields[#fields + 1] = field
      fields[#fields + 1] = m[field]
    end
  end
  for _, value in ipairs(placed or {}) do fields[#fields + 1] = value end
  redis.call('HSET', key.message(m.id), unpack(fields))
  journal('accepted', { message = m.id, kind = m.kind, sender = m.sender, recipient = m.to,
    task = m.task, late = m.late })
end

function mail.send(m)
  mail.record(m, place(m.id, m.to, m.delivery or 'follow_up', m.wakes))
end

-- A system message, at most one of each id; `data.about` says what it tells.
function mail.notice(id, to, wakes, delivery, task, data)
  if redis.call('EXISTS', key.message(id)) == 1 then return end
  if redis.call('HGET', key.agent(to), 'state') ~= 'open' then return end
  mail.send({ id = id, kind = 'notice', sender = '@tocsin', to = to, wakes = wakes,
    delivery = delivery, task = task, data = cjson.encode(data) })
end

-- The record of a message (`m`, where it was read already), or a refusal.
function mail.need(id, m)
  m = m or read(key.message(id))
  if not m.kind then
    refuse('unknown_message', 'there is no message ', id, " in herd '", args.herd,
      "'; its record may have ended")
  end
  return m
end

-- The record of a message that the caller may look at, or a refusal.
function mail.readable(id)
  local m = mail.need(id)
  if not seat.may_read(m) then
    refuse('forbidden', 'message ', id, ' is between ', m.sender, ' and ', m.to)
  end
  return m
end

-- Whether a record of this id is there already: a repeat of the same call, or a conflict.
function mail.repeated(id, digest)
  local known = redis.call('HGET', key.message(id), 'digest')
  if not known then return false end
  if known ~= digest then
    refuse('duplicate_conflict', 'message ', id, ' was already sent with other content; ',
      'use a new id or key for a new message')
  end
  return true
end

-- What of a record decides where its envelope goes, and what a request's end needs; bodies are long
-- and stay where they are.
function mail.head(id)
  return pick(key.message(id), { 'kind', 'sender', 'sender_generation', 'to', 'delivery', 'wakes',
    'task', 'state', 'by', 'entry', 'request', 'was', 'reply', 'ask', 'round', 'seq', 'damaged' })
end

-- Takes the entry out of its stream, read or not.
function mail.unlist(id, m)
  if m.entry and m.entry ~= '' then
    local stream = mail.stream(m.to, m.delivery)
    redis.pcall('XACK', stream, 'agent', m.entry)
    redis.call('XDEL', stream, m.entry)
  end
  redis.call('ZREM', key.waking(m.to), id)
  if m.state == 'delayed' then
    redis.call('ZREM', key.delayed(m.to), id)
    timer.clear('6:deliver:' .. id)
  end
end

-- Mail is handled, by an instance of its recipient: `held`, the heads by id, in the order of `ids`.
function mail.handled(agent, instance, held, ids)
  if #ids == 0 then return end
  local entries = { steer = {}, follow_up = {} }
  for _, id in ipairs(ids) do table.insert(entries[held[id].delivery], held[id].entry) end
  for delivery, list in pairs(entries) do
    if #list > 0 then
      redis.pcall('XACK', mail.stream(agent, delivery), 'agent', unpack(list))
      redis.call('XDEL', mail.stream(agent, delivery), unpack(list))
    end
  end
  redis.call('ZREM', key.waking(agent), unpack(ids))
  for _, id in ipairs(ids) do
    redis.call('HSET', key.message(id), 'state', 'handled', 'handled_at', now, 'by', instance, 'entry', '')
    outbox.news(id, held[id], 'handled')
    if held[id].kind ~= 'request' then
      redis.call('HDEL', key.message(id), 'body', 'data')
      mail.retire(id)
    elseif held[id].request ~= 'open' then
      mail.retire(id, tonumber(herd.task_retention))
    end
  end
  journal('handled', { agent = agent, messages = ids })
end

-- The record goes so long after both the envelope and what was expected of it have ended: unless
-- told otherwise, after `receipt_retention`. Requests stay as long as tasks do, because a late answer
-- must find its question.
function mail.retire(id, kept_for)
  timer.set('9:forget:m:' .. id, now + (kept_for or tonumber(herd.receipt_retention)))
end

-- Ends an envelope that is not to be read any more.
function mail.take_back(id, m, reason)
  mail.unlist(id, m)
  redis.call('HSET', key.message(id), 'state', 'withdrawn', 'ended_at', now, 'reason', reason,
    'entry', '', 'by', '')
  journal('withdrawn', { message = id, reason = reason })
  mail.retire(id, m.kind == 'request' and tonumber(herd.task_retention))
end

-- Takes back what nobody has begun to read.
function mail.withdraw(id, reason)
  local m = mail.head(id)
  if m.state == 'queued' or m.state == 'delayed' or m.state == 'accepted' or m.state == 'shown' then
    mail.take_back(id, m, reason)
  end
end

-- Whether what an envelope asks for has ended while somebody held it.
function mail.pointless(m)
  if m.kind == 'request' then return not requests.answerable(m) end
  return m.kind == 'task' and not tasks.still_open(m.task)
end

-- Gives held mail back, for anyone who serves the agent to take again. What is not to be done any
-- more is taken back instead: unread it would have been, and nobody should begin with it anew.
function mail.hand_back(id, m, delay, why)
  if mail.pointless(m) then return mail.take_back(id, m, 'what it asks for has ended') end
  journal('returned', { message = id, agent = m.to, instance = m.by, error = why })
  mail.unlist(id, m)
  redis.call('HSET', key.message(id), 'by', '')
  if delay and delay > 0 then
    redis.call('HSET', key.message(id), 'state', 'delayed', 'entry', '', 'comes_at', now + delay)
    redis.call('ZADD', key.delayed(m.to), now + delay, id)
    timer.set('6:deliver:' .. id, now + delay)
  else
    mail.add(id, m.to, m.delivery, m.wakes == '1')
  end
end

-- How much mail of an agent nobody has taken.
function mail.unread(agent)
  local unread = 0
  for _, stream in ipairs({ key.inbox(agent), key.steer(agent) }) do
    local taken = redis.pcall('XPENDING', stream, 'agent')   -- no group: nothing was ever taken
    unread = unread + redis.call('XLEN', stream) - (taken.err and 0 or taken[1])
  end
  return unread
end
