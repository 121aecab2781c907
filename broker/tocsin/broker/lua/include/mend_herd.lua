-- The herd, its agents, tasks and waits against what is derived from their records; see `mend`.

-- Whether the reminder of an episode was made, when its marker is not there: it was read, or nobody
-- was handed it yet. What stands behind 2,000 entries is taken to be there.
local function was_reminded(id, task)
  if task.reminder_read == task.episode then return true end
  if redis.call('EXISTS', key.message(reminders.id(id, task.episode))) == 1 then return true end
  local entries = redis.call('XRANGE', key.inbox('parent'), '-', '+', 'COUNT', 2000)
  for _, entry in ipairs(entries) do
    if entry[2][1] == 'r' and entry[2][2] == id and entry[2][4] == task.episode then return true end
  end
  return #entries == 2000
end

-- A waiting task: since its oldest open question, in an episode, with its reminder to come or given.
local function wait(id, task)
  local oldest = redis.call('ZRANGE', key.questions(id), 0, 0, 'WITHSCORES')
  if tonumber(oldest[2]) ~= tonumber(task.waiting_since) then
    mend.wrong('waits', id, function() tasks.resume(id) end)
    task = read(key.task(id))
    if task.state ~= 'waiting' then return end
  end
  if redis.call('HGET', key.episodes(), id) ~= task.episode then
    mend.wrong('episodes', id, function() redis.call('HSET', key.episodes(), id, task.episode) end)
  end
  local since = redis.call('ZSCORE', key.waiting(), id)
  if redis.call('EXISTS', key.reminded(id, task.episode)) == 1 then
    mend.stray('waiting', key.waiting(), id)
  elseif not since and was_reminded(id, task) then
    mend.wrong('reminded', id, function() redis.call('SET', key.reminded(id, task.episode), now) end)
  else
    mend.member('waiting', key.waiting(), id, task.waiting_since)
  end
end

function mend_herd.task(id)
  local found = read(key.task(id))
  if not found.state then return end
  mend.types_of(found.agent)
  mend.typed('questions', id, key.questions(id))
  mend.typed('reminded', id, key.reminded(id, found.episode))
  if found.watch and found.watch ~= '' then mend.typed('watch', found.watch, key.watch(found.watch)) end
  mend.member('tasks', key.tasks(), id, found.created_at)
  if not tasks.is_open(found) then
    return mend.timed('9:forget:t:' .. id, found.settled_at + herd.task_retention, true)
  end
  if herd.state == 'closed' or mend.state_of(found.agent, nil, found.generation) == 'closed' then
    return mend.wrong('tasks', id, function() tasks.settle(id, 'cancelled', { error = 'its agent was closed' }) end)
  end
  mend.timed('1:deadline:' .. id, found.deadline)
  local queued = redis.call('HGET', key.message('msg_task_' .. bare(id)), 'state') == 'queued'
  local lists = { workload = key.workload(found.agent), queue = key.queue(found.agent) }
  mend.member(queued and 'queue' or 'workload', lists[queued and 'queue' or 'workload'], id, found.created_at)
  mend.stray(queued and 'workload' or 'queue', lists[queued and 'workload' or 'queue'], id)
  if found.watch and found.watch ~= '' and found.watch ~= 'each' and
    redis.call('SISMEMBER', key.watch(found.watch), id) == 0 then
    mend.wrong('watch', id, function() redis.call('SADD', key.watch(found.watch), id) end)
  end
  if found.state == 'waiting' then wait(id, found) end
end

-- Who holds mail has a lease: if it was lost, one that ended just now, so that its process has the
-- grace to renew it and its mail comes back if there is none.
local function consumers(name)
  for _, stream in ipairs({ key.steer(name), key.inbox(name) }) do
    local found = redis.pcall('XINFO', 'CONSUMERS', stream, 'agent')
    for _, consumer in ipairs(found.err and {} or found) do
      local instance, pending = consumer[2], consumer[4]
      if redis.call('ZSCORE', key.instances(name), instance) then   -- as it should be
      elseif pending == 0 then
        mend.wrong('consumers', instance, function() redis.call('XGROUP', 'DELCONSUMER', stream, 'agent', instance) end)
      else
        mend.wrong('instances', instance, function()
          redis.call('ZADD', key.instances(name), manual and FOREVER or wall, instance)
        end)
      end
    end
  end
end

-- A turn that is due has its time, or stands among those to be launched, or is held while its herd has no
-- place for it; one that was launched or runs has a time when it counts as lost.
local function turn(name, found)
  if found.turn_state == 'none' then return end
  if found.turn_state ~= 'due' then mend.member('turning', key.turning(), name, found.turn_since) end
  local member = '6:turn:' .. name
  if redis.call('ZSCORE', key.due(), member) then return end
  if found.turn_state == 'due' then
    local lane = found.turn_lane
    if lane and mend.typed('launches', name, key.launches(lane)) and
      redis.call('ZSCORE', key.launches(lane), args.herd .. '/' .. name) then
      if not redis.call('ZSCORE', key.lanes(), lane) then
        mend.wrong('lanes', lane, function() redis.call('ZADD', key.lanes(), now, lane) end)
      end
      return
    end
    if redis.call('ZSCORE', key.held(), name) and redis.call('ZCARD', key.turning()) > 0 then return end
  end
  mend.wrong('timers', member, function() timer.set(member, now) end)
end

function mend_herd.agent(name)
  local found = read(key.agent(name))
  if not found.state then return end
  mend.types_of(name)
  local listed = redis.call('ZSCORE', key.agents(), name)
  mend.member('agents', key.agents(), name, found.registered_at)
  if not listed and args.mend == '1' then   -- a walk that goes on would pass it by, and one that is over did
    redis.call('HDEL', key.herd(), 'walked', 'cancelled_to')
  end
  if found.state == 'closing' then return mend.timed('0:close:' .. name, now, true) end
  if found.state == 'closed' then
    return mend.timed('9:forget:a:' .. name, found.closed_at + herd.task_retention, true)
  end
  consumers(name)
  local first = redis.call('ZRANGE', key.instances(name), 0, 0, 'WITHSCORES')
  if first[2] and tonumber(first[2]) < FOREVER and not redis.call('ZSCORE', key.due(), '7:lease:' .. name) then
    mend.wrong('timers', '7:lease:' .. name, function() lease.watch(name) end)
  end
  if found.turn_state then turn(name, found) end
  if not first[1] and name ~= 'parent' and not found.away_told and not found.turn_state and
    redis.call('ZCARD', key.workload(name)) > 0 and not redis.call('ZSCORE', key.due(), '8:away:' .. name) then
    mend.wrong('timers', '8:away:' .. name, function() lease.absent(name) end)
  end
  if redis.call('ZCARD', key.queue(name)) > 0 and
    redis.call('ZCARD', key.workload(name)) < tonumber(herd.max_open_tasks) then
    mend.wrong('queue', name, function() tasks.fill_slots(name) end)
  end
end

-- A plan: on the list and with its time among those that schedulers look at, or on its way out.
function mend_herd.plan(id)
  local found = read(key.plan(id))
  if not found.state then return end
  local active = found.state == 'active' and herd.state == 'open'
  if active or found.state == 'paused' then
    mend.member('plans', key.plans(), id, found.created_at)
  else
    mend.timed('9:forget:p:' .. id, now + herd.task_retention, true)
  end
  if active then
    mend.member('planned', key.planned(), plans.member(id), found.next)
  else
    mend.stray('planned', key.planned(), plans.member(id))
  end
end

-- The herd itself: where it is under, asked anew; its place among the herds, its closing or its end, the timer of its oldest wait,
-- and its place among the partition's timers. That one is early at worst, or put off by a visit.
function mend_herd.herd()
  local earliest = redis.call('ZRANGE', key.due(), 0, 0, 'WITHSCORES')[2]
  local at = redis.call('ZSCORE', key.timers(), args.herd)
  if earliest and not (at and tonumber(at) <= math.max(tonumber(earliest), now)) or at and not earliest then
    mend.wrong('timers', args.herd, timer.visit)
  end
  mend.member('herds', key.herds(), args.herd, herd.opened_at)
  if args.mend == '1' then ties.refresh() end
  if herd.state == 'closing' then mend.timed('0:close:herd', now, true) end
  if herd.state == 'closed' then
    mend.timed('9:forget:herd', herd.closed_at + herd.herd_retention, true)
  else
    local first = redis.call('XRANGE', key.journal(), '-', '+', 'COUNT', 1)[1]
    local oldest = first and cjson.decode(first[2][2]).at or now
    mend.timed('9:forget:journal', oldest + herd.journal_retention, true)
  end
  local stale = reminders.due()
  if stale then mend.timed('5:stale', stale) end   -- one that is there without a wait does no harm
end

-- The reminders that the parent's group has still to hand over, by id; of an inbox so long that it
-- would take too much of the server's time, all are taken to be there.
local unread_reminders
local function is_unread(reminder)
  if not unread_reminders then
    unread_reminders = {}
    local entries = redis.call('XRANGE', key.inbox('parent'),
      '(' .. (mail.passed(key.inbox('parent')) or '0-0'), '+', 'COUNT', 2000)
    if #entries == 2000 then setmetatable(unread_reminders, { __index = function() return true end }) end
    for _, entry in ipairs(entries) do unread_reminders[dead.named(entry[2]) or ''] = true end
  end
  return unread_reminders[reminder]
end

-- The marker of a reminder ends with its episode; as long as it is there, the reminder is, or was read.
function mend_herd.marker(id, episode)
  mend.typed('reminded', id, key.reminded(id, episode))
  local known = pick(key.task(id), { 'state', 'episode', 'reminder_read' })
  if known.state == 'waiting' and known.episode == episode then
    local reminder = reminders.id(id, episode)
    if known.reminder_read == episode or herd.state ~= 'open' or is_unread(reminder) or
      redis.call('EXISTS', key.message(reminder)) == 1 or
      redis.call('EXISTS', key.reminded(id, episode)) == 0 then return end
    return mend.wrong('inbox', reminder, function()
      local seq = redis.call('HINCRBY', key.herd(), 'seq', 1)
      redis.call('XADD', key.inbox('parent'), '*', 'r', id, 'e', episode, 's', seq)
    end)
  end
  if redis.call('EXISTS', key.reminded(id, episode)) == 0 then return end
  mend.wrong('reminded', id, function() redis.call('DEL', key.reminded(id, episode)) end)
end
