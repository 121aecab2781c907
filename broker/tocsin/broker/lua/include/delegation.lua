-- A task that a child is given, by its parent or by a plan: checks, then its record and its envelope.

-- Refuses one that its child has no room for. Whether it has to wait for a slot.
function delegation.check(child, queue)
  local free = redis.call('ZCARD', key.workload(child)) < tonumber(herd.max_open_tasks)
  if not free and queue ~= '1' then
    local held = redis.call('ZRANGE', key.workload(child), 0, -1)
    refuse('agent_busy', "agent '", child, "' holds ", #held, ' open task(s): ',
      table.concat(held, ', '), '; wait for or cancel one, or have this one queued (queue=True, --queue)')
  end
  room.check(child)
  return not free
end

-- When it ends, at the latest: after `lasts`, at `ends`, or as the herd has it.
function delegation.ends(lasts, ends)
  local at = tonumber(ends) or now + (tonumber(lasts) or tonumber(herd.task_deadline))
  if at <= now then
    refuse('invalid_input', 'deadline is in the past by the clock of the server; give a later one')
  end
  if at - now > 366 * 86400000 then
    refuse('invalid_input', 'deadline is more than 366 days away; give an earlier one')
  end
  return at
end

-- `t`: id child generation description deadline watch digest queued, and as they apply continues and
-- data (what it continues).
function delegation.give(t)
  redis.call('HSET', key.task(t.id), 'agent', t.child, 'generation', t.generation,
    'state', 'created', 'description', t.description, 'created_at', now, 'deadline', t.deadline,
    'watch', t.watch == '1' and 'each' or '', 'continues', t.continues or '', 'digest', t.digest,
    'episode', 0)
  redis.call('ZADD', key.tasks(), now, t.id)
  timer.set('1:deadline:' .. t.id, t.deadline)
  local envelope = { id = 'msg_task_' .. bare(t.id), kind = 'task', sender = 'parent', to = t.child,
    task = t.id, wakes = true, state = t.queued and 'queued' or nil, data = t.data }
  journal('delegated', { task = t.id, agent = t.child, queued = t.queued or nil })
  if t.queued then
    redis.call('ZADD', key.queue(t.child), now, t.id)
    mail.record(envelope)
  else
    redis.call('ZADD', key.workload(t.child), now, t.id)
    mail.send(envelope)
    if not lease.live(t.child) then lease.absent(t.child) end
  end
end
