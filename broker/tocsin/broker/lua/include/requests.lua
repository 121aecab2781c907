-- Requests: an envelope that expects a reply, and the record of that expectation. In its record,
-- `request` is open, then answered, expired, cancelled, settled, dead, agent_closed, asker_closed,
-- or of an ask no_reply or ceiling_active; `opened_at`, `deadline` (ms, 0: its task's), `was`
-- (recipients before a reroute), and once there is one: `reply`, `reply_digest`, `answer`,
-- `answered_by`, `answered_at`.

-- Whether a question may be put at all: its recipient, its text, the task that would wait. `waits`:
-- for room, see `room.check`.
function requests.check(to, task, body, data, waits)
  seat.open_agent(to)
  if to == args.agent then
    refuse('invalid_input', "agent '", to, "' cannot wait for an answer from itself")
  end
  text.check_envelope(body, data)
  if task ~= '' then
    local asking = tasks.own(task)
    if not tasks.is_open(asking) then
      refuse('wrong_state', 'task ', task, ' is ', asking.state, ' and can wait for nothing; ',
        'ask without a task, or continue it with a new one')
    end
    if redis.call('ZCARD', key.questions(task)) >= tonumber(herd.max_open_requests) then
      refuse('queue_full', 'task ', task, ' has ', herd.max_open_requests,
        ' open questions, its limit; wait for answers first')
    end
  end
  room.check(to, waits)
end

-- Notes whom an open request waits on, and lets its task wait.
function requests.expect(m)
  redis.call('ZADD', key.asked(m.to), now, m.id)
  redis.call('ZADD', key.asking(m.sender), now, m.id)
  if m.task then
    redis.call('ZADD', key.questions(m.task), now, m.id)
    tasks.wait(m.task)
  end
end

-- Sends an envelope that expects a reply, within so many ms unless it is 0.
function requests.open(m, within)
  m.request, m.opened_at, m.deadline = 'open', now, within > 0 and now + within or 0
  mail.send(m)
  if within > 0 then timer.set('2:reply:' .. m.id, m.deadline) end
  requests.expect(m)
  requests.unheard(bare(m.id), m.id, m.sender, m.to, m.task)
end

-- A human is told of a question to an agent of which nobody is there to be woken; `what` is one such telling.
function requests.unheard(what, id, sender, to, task)
  if lease.live(to) or redis.call('HEXISTS', key.agent(to), 'turn_state') == 1 then return end
  alert('unheard', what, { message = id, sender = sender, recipient = to, task = task })
end

-- Whether news of a request should wake its asker: the work it was asked for is still open.
local function matters(m)
  if m.task ~= '' then return tasks.still_open(m.task) end
  return redis.call('ZCARD', key.workload(m.sender)) > 0
end

-- The notice of an end without an answer; one for each time it was opened.
function requests.notice(id, m) return 'msg_closed_' .. bare(id) .. (m.round and '_' .. m.round or '') end

-- Tells an asker by mail that its question closed without an answer, and why.
function requests.tell(id, m, how, why)
  local data = { about = 'request_closed', request = id, how = how, recipient = m.to, detail = why }
  if m.limit then   -- an ask that ran out
    data.reason, data.limit = m.silence, m.limit
    data.window_ms, data.ceiling_ms = tonumber(m.window), m.ceiling_at - m.opened_at
  end
  mail.notice(requests.notice(id, m), m.sender, matters(m), nil, m.task ~= '' and m.task or nil, data)
end

-- Whether an answer is still of use to its asker: also after an ask that got none in time, and to a
-- question that was dead-lettered, which may be replayed.
function requests.answerable(m)
  return m.request == 'open' or not m.reply and
    (m.request == 'no_reply' or m.request == 'ceiling_active' or m.request == 'dead')
end

-- Ends the expectation. `tell` is the sentence its asker gets; nil when the asker knows or is
-- told otherwise. A task that has no other open question runs again.
function requests.close(id, m, how, tell)
  redis.call('HSET', key.message(id), 'request', how, 'closed_at', now)
  redis.call('ZREM', key.asked(m.to), id)
  redis.call('ZREM', key.asking(m.sender), id)
  timer.clear('2:reply:' .. id)
  timer.clear('3:ceiling:' .. id)
  timer.clear('4:window:' .. id)
  journal('request_' .. how, { message = id, task = m.task, sender = m.sender, recipient = m.to })
  m.request = how
  if not requests.answerable(m) then mail.withdraw(id, how) end
  mail.retire(id, tonumber(herd.task_retention))
  if m.task ~= '' then
    redis.call('ZREM', key.questions(m.task), id)
    tasks.resume(m.task)
  end
  if how == 'answered' or m.ask == '1' and attendance.ended(id, m, tell) then return end
  if tell then requests.tell(id, m, how, tell) end
end

-- The reply deadline: it blocks the task that waits, or tells an asker without one.
function requests.expire(id)
  local m = read(key.message(id))
  if m.request ~= 'open' then return end
  local why = 'no reply from ' .. m.to .. ' to message ' .. id
  if m.task == '' then return requests.close(id, m, 'expired', why) end
  tasks.settle(m.task, 'blocked', { error = why, expired = id, tell = true })
end

-- Whether the caller may answer: it is, or was before a reroute, the recipient; or the parent.
function requests.may_answer(m)
  return seat.meant(m) or args.agent == 'parent' or seat.was_meant(m)
end

-- The record of an open request, or a refusal that says what it is instead.
function requests.need_open(id)
  local m = mail.need(id)
  if m.kind ~= 'request' then refuse('wrong_state', 'message ', id, ' is a ', m.kind, ', not a request') end
  if m.request ~= 'open' then refuse('wrong_state', 'request ', id, ' is no longer open: ', m.request) end
  return m
end
