-- Closing: one step marks `closing` and refuses new work; bounded sweeps then end what hangs on
-- the agent or herd. Each can be repeated by anybody; a timer does so until nothing is left.

-- Unread mail goes to the dead letters; a reminder, which tells of what has ended, just goes.
local function close_entry(agent, delivery, entry)
  local id, m = dead.known(entry[2])
  if not m then return dead.stray(agent, delivery, entry[1], entry[2], id, true) end
  if m.entry == entry[1] and m.kind ~= 'reminder' then
    if dead.flaw(m, agent, delivery) then m = dead.mend(id, m, agent, delivery) end
    return dead.bury(id, m, 'agent ' .. agent .. ' was closed', true)
  end
  redis.call('XDEL', mail.stream(agent, delivery), entry[1])
  if entry[2][1] == 'r' then
    journal('withdrawn', { message = id, kind = 'reminder', reason = 'agent ' .. agent .. ' was closed' })
  end
  if m.entry == entry[1] then redis.call('DEL', key.message(id)) end
end

-- Ends each of some things; one whose record, or what hangs on it, was written over stops no closing.
-- How many more may be ended.
local function each(ids, what, left, ending)
  for _, id in ipairs(ids) do
    local ok, broke = pcall(ending, id)
    if not ok then journal('set_aside', { [what] = id, error = words(broke) }) end
    left = left - 1
  end
  return left
end

-- The same of what a sorted set lists, up to a score.
local function each_of(list, what, left, ending, at)
  local ids = redis.call('ZRANGEBYSCORE', list, '-inf', at or '+inf', 'LIMIT', 0, left)
  left = each(ids, what, left, ending)
  if #ids > 0 then redis.call('ZREM', list, unpack(ids)) end   -- one whose record was lost, too
  return left
end

-- Cancels open tasks of an agent that were created up to `at`, up to `left`; how many more things may
-- be done. `how` as for `tasks.settle`.
local function cancel_tasks(agent, left, at, how)
  for _, list in ipairs({ key.queue(agent), key.workload(agent) }) do   -- a freed slot fetches none
    left = each_of(list, 'task', left, function(task)
      local begun = redis.call('HGET', key.task(task), 'state') ~= 'created'
      tasks.settle(task, 'cancelled', how)
      if begun and how.tell then ties.cancelled(task, agent) end
    end, at)
    if left <= 0 then break end
  end
  return left
end

local function close_requests(list, left, how, tell)
  return each_of(list, 'message', left, function(request)
    local m = read(key.message(request))
    if m.to then requests.close(request, m, how, tell) end
  end)
end

-- Ends up to `limit` things of a closing agent. True once it is closed, and how many more may be ended.
local function close_agent(agent, limit, reason)
  turns.stop(agent, 'agent ' .. agent .. ' was closed')
  ties.tell(agent)   -- the herds under it, which close in their own time
  redis.call('DEL', key.leads(agent))
  local left = cancel_tasks(agent, limit, '+inf', { error = reason })
  if left <= 0 then return false end
  left = close_requests(key.asked(agent), left, 'agent_closed',
    'agent ' .. agent .. ' was closed' .. (reason ~= '' and ': ' .. reason or ''))
  if left <= 0 then return false end
  left = close_requests(key.asking(agent), left, 'asker_closed')
  if left <= 0 then return false end
  for _, delivery in ipairs({ 'steer', 'follow_up' }) do
    local entries, ids = {}, {}
    for n, entry in ipairs(redis.call('XRANGE', mail.stream(agent, delivery), '-', '+', 'COUNT', left)) do
      entries[entry[1]], ids[n] = entry, entry[1]
    end
    left = each(ids, 'entry', left, function(id) close_entry(agent, delivery, entries[id]) end)
    if #ids > 0 then redis.call('XDEL', mail.stream(agent, delivery), unpack(ids)) end
    if left <= 0 then return false end
  end
  left = each_of(key.answers(agent), 'message', left, function(ask)
    timer.clear('7:attend:' .. ask)
    local reply = redis.call('HGET', key.message(ask), 'reply')
    local m = reply and read(key.message(reply)) or {}
    if m.state == 'held' then dead.bury(reply, m, 'agent ' .. agent .. ' was closed', true) end
  end)
  if left <= 0 then return false end
  left = each_of(key.delayed(agent), 'message', left, function(id)
    local m = read(key.message(id))
    if m.to then dead.bury(id, m, 'agent ' .. agent .. ' was closed', true) end
  end)
  if left <= 0 then return false end
  redis.call('DEL', key.inbox(agent), key.steer(agent), key.waking(agent), key.delayed(agent),
    key.answers(agent), key.instances(agent), key.workload(agent), key.queue(agent),
    key.asked(agent), key.asking(agent), key.exchanges(agent))
  if redis.call('HEXISTS', key.agent(agent), 'turn_state') == 1 then
    turns.drop(agent)
    redis.call('HDEL', key.agent(agent), 'turn_token', 'turn_instance')
  end
  timer.clear('7:lease:' .. agent)
  timer.clear('8:away:' .. agent)
  redis.call('HSET', key.agent(agent), 'state', 'closed', 'closed_at', now)
  timer.set('9:forget:a:' .. agent, now + tonumber(herd.task_retention))
  journal('closed', { agent = agent })
  mail.ring(agent)   -- whoever still waits for its mail learns that it ended
  return true, left
end

-- One pass over a closing agent. True once it is closed, and how many more things may be ended.
function sweep.agent(agent, limit)
  local record = redis.call('HMGET', key.agent(agent), 'state', 'reason')
  if record[1] ~= 'closing' then return true, limit end
  local done, left = close_agent(agent, limit, record[2] or '')
  if done then timer.clear('0:close:' .. agent) else timer.set('0:close:' .. agent, now) end
  return done, left
end

-- One pass of a walk over the herd's agents, in the order they were registered, from where the one before
-- came to (in the herd's record: which walk, and the last agent that it was done with). `visit` is given
-- an agent and how many more things may be done, and says how many then; of none it is visited again. A
-- pass visits `limit` agents at most. True once all were visited, and how many more things may be done.
local function walk(which, limit, visit)
  local known, score, last = string.match(herd.walked or '', '^(%S+) (%S+) (%S+)$')
  local from = 0
  if known == which and redis.call('ZSCORE', key.agents(), last) == score then
    from = redis.call('ZRANK', key.agents(), last) + 1
  elseif known == which then   -- it was forgotten meanwhile, or registered anew
    from = redis.call('ZCOUNT', key.agents(), '-inf', '(' .. score)
  end
  local page = redis.call('ZRANGE', key.agents(), from, from + limit - 1, 'WITHSCORES')
  local left, done = limit, 0
  for i = 1, #page, 2 do
    left = visit(page[i], left)
    if left <= 0 then break end
    done = i
  end
  if done > 0 then
    redis.call('HSET', key.herd(), 'walked', which .. ' ' .. page[done + 1] .. ' ' .. page[done])
  end
  return #page < 2 * limit and done + 1 >= #page, left
end

-- One pass over an agent of a closing herd, as `walk` visits it; the agent itself counts as one thing.
local function close_member(agent, limit)
  if redis.call('HGET', key.agent(agent), 'state') ~= 'closed' then
    redis.call('HSET', key.agent(agent), 'state', 'closing', 'reason', 'its herd was closed')
  end
  local done, left = sweep.agent(agent, limit)
  return done and left - 1 or 0
end

-- One pass over a closing herd, up to `limit` things of its agents: its children in turn, its parent
-- last. True once it is closed.
function sweep.herd(limit)
  if herd.state ~= 'closing' then return true end
  local all, left = walk('close', limit, function(agent, limit)
    return agent == 'parent' and limit or close_member(agent, limit)
  end)
  if not all or left <= 0 or close_member('parent', left) <= 0 then
    timer.set('0:close:herd', now)
    return false
  end
  herd.state = 'closed'
  redis.call('HSET', key.herd(), 'state', 'closed', 'closed_at', now)
  redis.call('HDEL', key.herd(), 'walked')
  plans.withdraw()
  timer.clear('0:close:herd')
  timer.clear('5:stale')
  timer.set('9:forget:herd', now + tonumber(herd.herd_retention))
  journal('closed', {})
  ties.claim()
  return true
end

-- Closing begins: no new work from here on.
function sweep.begin(reason)
  if herd.state ~= 'open' then return end
  herd.state = 'closing'
  redis.call('HSET', key.herd(), 'state', 'closing')
  journal('closing', { reason = reason })
end

-- One pass over the open tasks of all agents that were there when what they serve was cancelled. True
-- once none is left.
local function cancel_served(at, reason)
  local how = { error = reason, tell = true }
  if not walk(at, 100, function(agent, left) return cancel_tasks(agent, left, at, how) end) then return false end
  redis.call('HSET', key.herd(), 'cancelled_to', at)
  redis.call('HDEL', key.herd(), 'walked')
  return true
end

local function orphan(reason)
  if herd.tie == 'orphaned' then return end
  redis.call('HSET', key.herd(), 'tie', 'orphaned', 'tie_reason', reason)
  journal('orphaned', { under = herd.under, reason = reason })
  alert('herd_orphaned', herd.opened_by, { under = herd.under, reason = reason })
  mail.notice('msg_orphaned_' .. bare(herd.opened_by), 'parent', false, nil, nil,
    { about = 'herd_orphaned', under = herd.under, reason = reason })
end

-- Does as the herd over this one says (`ties.verdict`), in one bounded pass. True once that is done.
function sweep.heed(verdict)
  local how, why, _, at, task, error = unpack(verdict)
  if how == 'closed' then
    sweep.begin(why)
    if herd.state ~= 'closing' then return true end
    timer.set('0:close:herd', now)   -- whatever becomes of who carried this
    return sweep.herd(100)
  end
  if herd.state ~= 'open' then return true end
  redis.call('HSET', key.herd(), 'tie_at', now)
  if how == 'orphaned' then
    orphan(why)
    return true
  end
  if herd.tie ~= 'tied' then
    redis.call('HSET', key.herd(), 'tie', 'tied', 'tie_reason', '')
    journal('tied', { under = herd.under })
  end
  if herd.under_task ~= '' and task ~= herd.under_task then return true end   -- it serves another
  if at == '' or tonumber(at) <= tonumber(herd.cancelled_to or 0) then return true end
  return cancel_served(at, 'task ' .. task .. ' of ' .. herd.under .. ' was cancelled' ..
    (error ~= '' and ': ' .. error or ''))
end
