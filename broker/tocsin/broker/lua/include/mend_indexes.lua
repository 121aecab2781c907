-- Entries of indexes against the records they name; see `mend`.

local function task(id) return pick(key.task(id), { 'state', 'agent', 'episode' }) end
local function message(id)
  return pick(key.message(id), { 'kind', 'state', 'to', 'sender', 'task', 'request', 'ask', 'wakes', 'untold', 'reply' })
end
local function there(name) return redis.call('EXISTS', name) == 1 end
local function agent_is(name, state) return redis.call('HGET', key.agent(name), 'state') == state end
local function turn_is(name, state) return redis.call('HGET', key.agent(name), 'turn_state') == state end
local function open_request(id, field, value)
  local m = message(id)
  return m.request == 'open' and m[field] == value
end
local function slot(owner, id)
  local found = task(id)
  return tasks.is_open(found) and found.agent == owner
end

-- Whether a timer is of something that it could still happen to.
local timers = {
  close = function(id) return id == 'herd' and herd.state == 'closing' or agent_is(id, 'closing') end,
  deadline = function(id) return tasks.is_open(task(id)) end,
  reply = function(id) return message(id).request == 'open' end,
  ceiling = function(id) return open_request(id, 'ask', '1') end,
  window = function(id) return open_request(id, 'ask', '1') end,
  deliver = function(id) return message(id).state == 'delayed' end,
  lease = function(id) return there(key.agent(id)) end,
  away = function(id) return there(key.agent(id)) end,
  turn = function(id) return turn_is(id, 'due') or turn_is(id, 'launched') or turn_is(id, 'running') end,
  attend = function(id) return there(key.message(id)) end,
  forget = function(id)
    local kind, of = string.match(id, '^(%a):(.+)$')
    return not kind or herd.state == 'closed' or
      there(kind == 'm' and key.message(of) or kind == 't' and key.task(of) or
        kind == 'p' and key.plan(of) or key.agent(of))
  end,
}

-- Whether an entry belongs where it is, by the record that it names.
local belongs = {
  waiting = function(_, id) return task(id).state == 'waiting' end,
  episodes = function(_, id) return task(id).state == 'waiting' end,
  tasks = function(_, id) return there(key.task(id)) end,
  agents = function(_, name) return there(key.agent(name)) end,
  plans = function(_, id)
    local state = redis.call('HGET', key.plan(id), 'state')
    return state == 'active' or state == 'paused'
  end,
  outbox = function(_, member)
    local other, kind, seq, id = string.match(member, '^([a-z0-9_-]+)/([01])(%d+)/([^/]+)')
    if not other then return false end
    if not outbox.planned(other) then
      mend.wrong('forwards', other, function() outbox.plan(other, now) end)
    end
    if id == '@tie' then return string.match(member, '/claim$') or string.match(member, '/[a-z0-9_-]+%.%d+$') end
    if kind == '0' then return true end   -- news tell all themselves
    local m = message(id)
    return m.state == 'outgoing' and outbox.member(other, seq, id) == member and outbox.split(m.to) == other
  end,
  leads = function(agent, under)
    if not agent_is(agent, 'open') then return false end
    if args.mend == '1' then ties.look(agent, under) end
    return true
  end,
  dead = function(_, id) return message(id).state == 'dead' end,
  questions = function(owner, id) return open_request(id, 'task', owner) end,
  asked = function(owner, id) return open_request(id, 'to', owner) end,
  asking = function(owner, id) return open_request(id, 'sender', owner) end,
  answers = function(owner, id)
    local m = message(id)
    return m.ask == '1' and m.sender == owner
  end,
  workload = function(owner, id) return slot(owner, id) end,
  queue = function(owner, id) return slot(owner, id) end,
  delayed = function(owner, id)
    local m = message(id)
    return m.state == 'delayed' and m.to == owner
  end,
  waking = function(owner, id)
    local m = message(id)
    return (m.state == 'accepted' or m.state == 'shown') and m.to == owner and m.wakes == '1'
  end,
  turning = function(_, name) return turn_is(name, 'launched') or turn_is(name, 'running') end,
  held = function(_, name) return turn_is(name, 'due') end,
  due = function(_, timer_name)
    local kind, id = string.match(timer_name, '^%d:(%a+):?(.*)$')
    return not timers[kind] or timers[kind](id)
  end,
}

local INDEXES = {
  waiting = key.waiting, tasks = key.tasks, agents = key.agents, dead = key.dead, due = key.due,
  questions = key.questions, asked = key.asked, asking = key.asking, answers = key.answers,
  workload = key.workload, queue = key.queue, delayed = key.delayed, waking = key.waking,
  episodes = key.episodes, outbox = key.outbox, leads = key.leads, plans = key.plans,
  turning = key.turning, held = key.held,
}

-- Some entries of an index, from a cursor on; those that belong nowhere go. The next cursor.
function mend_indexes.check(kind, owner, cursor)
  local name, hash = INDEXES[kind](owner), kind == 'episodes' or kind == 'leads'
  if not mend.typed(kind, owner, name) then return '0' end
  local found = hash and redis.call('HSCAN', name, cursor, 'COUNT', 100) or
    redis.call('ZSCAN', name, cursor, 'COUNT', 100)
  for i = 1, #found[2], 2 do
    local id = found[2][i]
    if not belongs[kind](owner, id) then
      mend.wrong(kind, id, function()
        if hash then
          redis.call('HDEL', name, id)
        elseif kind == 'due' then
          timer.clear(id)
        else
          redis.call('ZREM', name, id)
        end
      end)
    end
  end
  return found[1]
end
