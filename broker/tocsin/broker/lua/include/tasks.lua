-- The life of a task: created -> running <-> waiting, and once into a terminal state.

function tasks.is_open(task)
  return task.state == 'created' or task.state == 'running' or task.state == 'waiting'
end

-- The same of a task whose record was not read.
function tasks.still_open(id)
  return tasks.is_open({ state = redis.call('HGET', key.task(id), 'state') })
end

-- The record of a task, or a refusal.
function tasks.need(id)
  local task = read(key.task(id))
  if not task.state then
    refuse('unknown_task', 'there is no task ', id, " in herd '", args.herd, "'; its record may have ended")
  end
  return task
end

-- Whether the caller owns a task, or is the parent.
function tasks.visible(task)
  return args.agent == 'parent' or task.agent == args.agent and task.generation == me.generation
end

-- A task that the caller may speak for: its own, or any of the herd to the parent.
function tasks.own(id)
  local task = tasks.need(id)
  if not tasks.visible(task) then
    refuse('forbidden', 'task ', id, " belongs to agent '", task.agent, "'; name your own task, or none")
  end
  return task
end

-- Its child was handed its envelope.
function tasks.start(id)
  if redis.call('HGET', key.task(id), 'state') ~= 'created' then return end
  redis.call('HSET', key.task(id), 'state', 'running', 'started_at', now)
  journal('running', { task = id })
end

-- A question opened on it. The first of a wait begins an episode.
function tasks.wait(id)
  local known = pick(key.task(id), { 'state', 'agent', 'episode' })
  if known.state == 'waiting' then return end
  local episode = known.episode + 1
  redis.call('HSET', key.task(id), 'state', 'waiting', 'waiting_since', now, 'episode', episode)
  redis.call('HSET', key.episodes(), id, episode)
  redis.call('ZADD', key.waiting(), now, id)
  reminders.arm()
  journal('waiting', { task = id, agent = known.agent, episode = episode })
end

-- The end of an episode is what clears its reminder's marker, and nothing else does.
local function end_episode(id, episode)
  redis.call('ZREM', key.waiting(), id)
  redis.call('HDEL', key.episodes(), id)
  redis.call('DEL', key.reminded(id, episode))
  redis.call('HSET', key.task(id), 'waiting_since', '')
  reminders.arm()
end

-- A question closed: on with the work, or on waiting, since the oldest that is still open.
function tasks.resume(id)
  local task = redis.call('HMGET', key.task(id), 'state', 'episode')
  if task[1] ~= 'waiting' then return end
  local oldest = redis.call('ZRANGE', key.questions(id), 0, 0, 'WITHSCORES')
  if oldest[1] then
    redis.call('HSET', key.task(id), 'waiting_since', oldest[2])
    redis.call('ZADD', key.waiting(), 'XX', oldest[2], id)
    reminders.arm()
    return
  end
  redis.call('HSET', key.task(id), 'state', 'running')
  end_episode(id, task[2])
  journal('running', { task = id })
end

-- Whether this settlement wakes the parent: its task is watched, or was the last of a watched set.
local function wakes_parent(id, watch)
  if watch == nil or watch == '' then return false end
  if watch == 'each' then return true end
  redis.call('SREM', key.watch(watch), id)
  return redis.call('EXISTS', key.watch(watch)) == 0
end

-- The agent's next queued tasks get the free slots: one, or more if the herd's limit was raised.
function tasks.fill_slots(agent)
  if redis.call('HGET', key.agent(agent), 'state') ~= 'open' then return end
  local free = tonumber(herd.max_open_tasks) - redis.call('ZCARD', key.workload(agent))
  if free <= 0 then return end
  local next = redis.call('ZPOPMIN', key.queue(agent), free)
  for i = 1, #next, 2 do
    redis.call('ZADD', key.workload(agent), next[i + 1], next[i])
    mail.add('msg_task_' .. bare(next[i]), agent, 'follow_up', true)
  end
  if #next > 0 and not lease.live(agent) then lease.absent(agent) end
end

-- Keeps in the journal what came too late for a task; `what` tells a repeat, which is not kept again.
function tasks.late(id, event, what, fields)
  what = args.instance .. ' ' .. what
  if redis.call('HGET', key.task(id), 'too_late') == what then return end
  redis.call('HSET', key.task(id), 'too_late', what)
  journal(event, fields)
end

-- What a settlement carries: all of it, because it may be read when its task is long forgotten.
local function settlement(id, agent, state, how)
  local codes = { completed = 0, failed = 1, blocked = 2, timed_out = 124, cancelled = 130 }
  return cjson.encode({ about = 'task_settled', task_id = id, agent = agent, status = state,
    ok = state == 'completed', return_code = codes[state], summary = how.summary or '',
    error = how.error or '', completed_at = now })
end

-- Settles an open task, once. `how`: summary, error, digest (of what its owner said), expired (the
-- request whose deadline passed), override (why a waiting one was completed), tell (the child hears
-- it as a steer notice), wakes. Its oldest open question is kept for a task that continues it.
function tasks.settle(id, state, how)
  local task = read(key.task(id))
  if not tasks.is_open(task) then return end
  local open, records = redis.call('ZRANGE', key.questions(id), 0, -1), {}
  for i, request in ipairs(open) do records[i] = read(key.message(request)) end
  redis.call('HSET', key.task(id), 'state', state, 'settled_at', now, 'summary', how.summary or '',
    'error', how.error or '', 'question', how.expired or open[1] or '',
    'override', how.override or '', 'done_digest', how.digest or '')
  if task.state == 'waiting' then end_episode(id, task.episode) end
  for i, request in ipairs(open) do
    if records[i].to then
      requests.close(request, records[i], request == how.expired and 'expired' or 'settled')
    else   -- its record was lost
      redis.call('ZREM', key.questions(id), request)
    end
  end
  mail.withdraw('msg_task_' .. bare(id), state)
  redis.call('ZREM', key.workload(task.agent), id)
  redis.call('ZREM', key.queue(task.agent), id)
  timer.clear('1:deadline:' .. id)
  timer.set('9:forget:t:' .. id, now + tonumber(herd.task_retention))
  journal(state, { task = id, agent = task.agent, error = how.error, override = how.override })
  local wakes = wakes_parent(id, task.watch) or how.wakes
  if redis.call('HGET', key.agent('parent'), 'state') == 'open' then
    mail.send({ id = 'msg_settled_' .. bare(id), kind = 'task_settled', sender = task.agent,
      to = 'parent', wakes = wakes, task = id, data = settlement(id, task.agent, state, how) })
    mail.ring('parent', 'settled')
  end
  if state == 'blocked' or state == 'failed' then
    alert(state, bare(id), { task = id, agent = task.agent, error = how.error })
  end
  if how.tell then
    mail.notice('msg_ended_' .. bare(id), task.agent, false, 'steer', id,
      { about = 'task_ended', task = id, state = state, detail = how.error or '' })
    if (state == 'cancelled' or state == 'timed_out') and redis.call('ZCARD', key.workload(task.agent)) == 0 then
      turns.stop(task.agent, 'task ' .. id .. ' is ' .. state)
    end
  end
  tasks.fill_slots(task.agent)
end
