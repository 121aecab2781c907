-- Mail and questions against what is derived from their records; see `mend`.

local function latest(...)
  local last = 0
  for _, at in pairs({ ... }) do last = math.max(last, tonumber(at) or 0) end
  return last
end

-- Whether the stream's group went past an entry, in which case it hands it to nobody any more.
local function passed(stream, entry)
  local last = mail.passed(stream)
  if not last then return false end
  local at, nth = string.match(entry, '^(%d+)-(%d+)$')
  local last_at, last_nth = string.match(last, '^(%d+)-(%d+)$')
  if at ~= last_at then return tonumber(at) < tonumber(last_at) end
  return tonumber(nth) <= tonumber(last_nth)
end

local function listed(stream, m)
  return m.entry and m.entry ~= '' and redis.call('XRANGE', stream, m.entry, m.entry)[1] ~= nil
end

-- Unread mail is in its recipient's stream, behind what was taken, and wakes if it should. Put there
-- anew, it keeps its number and so its place.
local function unread(id, m)
  local stream = mail.stream(m.to, m.delivery)
  if not listed(stream, m) or passed(stream, m.entry) then
    mend.wrong('inbox', id, function()
      mail.unlist(id, m)
      redis.call('HSET', key.message(id), 'entry', redis.call('XADD', stream, '*', 'm', id, 's', m.seq))
      if m.wakes ~= '1' then return end
      redis.call('ZADD', key.waking(m.to), m.seq, id)
      redis.call('HSET', key.message(id), 'wake:bell', string.format('%.0f %d', now, mail.ring(m.to)))
    end)
  elseif m.wakes == '1' then
    mend.member('waking', key.waking(m.to), id, m.seq)
  end
end

-- Mail in somebody's hands is pending for that instance. One that lives acks it by its record, entry
-- or not; of one that is gone it comes back.
local function held(id, m)
  local stream = mail.stream(m.to, m.delivery)
  local pending = redis.pcall('XPENDING', stream, 'agent', m.entry, m.entry, 1)
  local there = listed(stream, m)
  if there and not pending.err and pending[1] and pending[1][2] == m.by and passed(stream, m.entry) then return end
  if not redis.call('ZSCORE', key.instances(m.to), m.by) then
    mend.wrong('holders', id, function() dead.failed(id, m, 'instance ' .. m.by .. ' died holding it') end)
  elseif there then
    mend.wrong('groups', id, function()
      if pending.err then redis.call('XGROUP', 'CREATE', stream, 'agent', '0') end
      redis.call('XCLAIM', stream, 'agent', m.by, 0, m.entry, 'LASTID', m.entry, 'FORCE', 'JUSTID')
    end)
  end
end

-- An open question: whom it waits on, who asked, the task that waits, when it ends.
local function question(id, m)
  local task = m.task ~= '' and redis.call('HGET', key.task(m.task), 'state')
  local ended = m.task ~= '' and not tasks.is_open({ state = task }) and 'settled' or
    mend.state_of(m.to, m.seq) == 'closed' and 'agent_closed' or
    mend.state_of(m.sender, nil, m.sender_generation) == 'closed' and 'asker_closed'
  if ended then
    local tell = ended == 'agent_closed' and 'agent ' .. m.to .. ' was closed' or nil
    return mend.wrong('requests', id, function() requests.close(id, m, ended, tell) end)
  end
  mend.member('asked', key.asked(m.to), id, m.opened_at)
  mend.member('asking', key.asking(m.sender), id, m.opened_at)
  if task then
    mend.member('questions', key.questions(m.task), id, m.opened_at)
    if task ~= 'waiting' then mend.wrong('tasks', m.task, function() tasks.wait(m.task) end) end
  end
  if m.ask == '1' then
    mend.timed('3:ceiling:' .. id, m.ceiling_at)
    local window, last = '4:window:' .. id, tonumber(m.ceiling_at)
    if asks.due(id, m, true) < last and not redis.call('ZSCORE', key.due(), window) then
      mend.wrong('timers', window, function() asks.refresh(id) end)
    end
  elseif tonumber(m.deadline or 0) > 0 then
    mend.timed('2:reply:' .. id, m.deadline)
  end
end

-- What an ask came to is kept for whoever waits to hear it, or becomes mail.
local function untold(id, m)
  local kept = m.untold or m.reply and redis.call('HGET', key.message(m.reply), 'state') == 'held'
  if not kept or mend.state_of(m.sender, nil, m.sender_generation) ~= 'open' then return end
  local timer_there = manual or redis.call('ZSCORE', key.due(), '7:attend:' .. id)
  if redis.call('ZSCORE', key.answers(m.sender), id) and timer_there then return end
  mend.wrong('answers', id, function() attendance.look(id) end)
end

-- Mail to another herd is in the outbox until it was forwarded or refused.
local function outgoing(id, m)
  if m.state ~= 'outgoing' then
    local kept = (m.state == 'refused' or m.there == 'handled') and herd.receipt_retention or herd.dead_retention
    local since = m.there == 'handled' and m.there_at or m.ended_at or m.forwarded_at
    return mend.timed('9:forget:m:' .. id, since + kept, true)
  end
  local other = outbox.split(m.to)
  local member = outbox.member(other, m.seq, id)
  if redis.call('ZSCORE', key.outbox(), member) then return end
  mend.wrong('outbox', id, function()
    redis.call('ZADD', key.outbox(), 0, member)
    outbox.plan(other, now)
  end)
end

function mend_mail.check(id)
  local m = read(key.message(id))
  mend.types_of(m.to)
  mend.types_of(m.sender)
  if m.ask == '1' then mend.typed('attending', id, key.attending(id)) end
  if m.task and m.task ~= '' then mend.typed('questions', m.task, key.questions(m.task)) end
  if m.state == 'dead' then
    mend.member('dead', key.dead(), id, m.ended_at)
    mend.timed('9:forget:m:' .. id, m.ended_at + dead.kept(m), true)
  end
  if not m.state or dead.flaw(m, m.to, m.delivery) then return end   -- whoever reads it buries it
  if outbox.split(m.to) then return outgoing(id, m) end
  if m.state == 'accepted' or m.state == 'shown' or m.state == 'taken' or m.state == 'delayed' then
    local recipient = mend.state_of(m.to, m.seq)
    if recipient == 'closed' then
      mend.wrong('mail', id, function() dead.bury(id, m, 'agent ' .. m.to .. ' was closed', true) end)
    elseif recipient == 'closing' then
      return   -- its sweep goes on
    elseif m.state == 'taken' then
      held(id, m)
    elseif m.state == 'delayed' then
      mend.member('delayed', key.delayed(m.to), id, m.comes_at)
      mend.timed('6:deliver:' .. id, m.comes_at)
    else
      unread(id, m)
    end
  elseif (m.state == 'handled' or m.state == 'withdrawn') and m.request ~= 'open' then
    local kept = m.kind == 'request' and herd.task_retention or herd.receipt_retention
    mend.timed('9:forget:m:' .. id, latest(m.handled_at, m.ended_at, m.closed_at, m.dropped_at) + kept, true)
  end
  if m.request == 'open' then question(id, m) elseif m.ask == '1' then untold(id, m) end
end
