-- How turns end, and what comes of it: the one place that decides.

local function open_tasks(agent, waiting)
  local found = {}
  for _, task in ipairs(redis.call('ZRANGE', key.workload(agent), 0, 999)) do
    local state = redis.call('HGET', key.task(task), 'state')
    if state == 'running' or state == 'created' or state == 'waiting' and waiting then found[#found + 1] = task end
  end
  return found
end

-- The mail that an instance holds, with what decides about it.
local function held_by(agent, instance)
  local found = {}
  for _, delivery in ipairs({ 'steer', 'follow_up' }) do
    local stream = mail.stream(agent, delivery)
    local pending = redis.pcall('XPENDING', stream, 'agent', '-', '+', 1000, instance)
    for _, each in ipairs(pending.err and {} or pending) do
      local entry = redis.call('XRANGE', stream, each[1], each[1])[1]
      local id = entry and dead.named(entry[2])
      local m = id and mail.head(id)
      if m and m.entry == each[1] and m.state == 'taken' then found[#found + 1] = { id, m } end
    end
  end
  return found
end

-- What the turn was shown, by a command inside it.
local function shown_in(agent, turn)
  local found = {}
  for _, delivery in ipairs({ 'steer', 'follow_up' }) do
    for _, entry in ipairs(redis.call('XRANGE', mail.stream(agent, delivery), '-', '+', 'COUNT', 1000)) do
      local id = dead.named(entry[2])
      local m = id and mail.head(id)
      if m and m.entry == entry[1] and m.state == 'shown' and
        redis.call('HGET', key.message(id), 'shown_turn') == turn then found[#found + 1] = { id, m } end
    end
  end
  return found
end

-- What a turn had in hand when it ended well is handled: it was told, and went its way.
local function handled(agent, a)
  local held, ids = {}, {}
  for _, list in ipairs({ held_by(agent, a.turn_instance), shown_in(agent, a.turn) }) do
    for _, each in ipairs(list) do
      held[each[1]] = each[2]
      ids[#ids + 1] = each[1]
    end
  end
  if #ids > 0 then mail.handled(agent, a.turn_instance, held, ids) end
end

-- On with the work after a turn that ended well: mail, or a task that nothing else moves on.
local function go_on(agent, a, runner)
  redis.call('HDEL', key.agent(agent), 'failures')
  local work = turns.work(agent)
  if work == 'mail' then
    turns.plan(agent, 'mail', runner.wake_batch)
    return 'continues'
  end
  if not work then return #open_tasks(agent, true) > 0 and 'waits' or 'idle' end
  if redis.call('ZCARD', key.asking(agent)) > 0 then return 'waits' end
  if tonumber(a.nudges or 0) < runner.max_nudges then
    redis.call('HINCRBY', key.agent(agent), 'nudges', 1)
    turns.plan(agent, 'nudge', runner.wake_batch)
    return 'nudged'
  end
  local task = open_tasks(agent)[1]
  mail.notice('msg_unfinished_' .. bare(task) .. '_' .. a.turn, 'parent', false, nil, task,
    { about = 'unfinished', agent = agent, task = task, nudges = runner.max_nudges })
  return 'left_open'
end

-- It has failed once too often: so have its tasks, and what mail it held is dead. What is unread beside
-- that has its turn; but not if none was taken, because then the next turn would come no further.
local function give_up(agent, a, how)
  redis.call('HDEL', key.agent(agent), 'failures')
  local reason = how.why .. ', ' .. (tonumber(a.failures or 0) + 1) .. ' times in a row'
  local held = held_by(agent, a.turn_instance)
  for _, task in ipairs(open_tasks(agent)) do
    tasks.settle(task, 'failed', { error = reason .. (how.tail and how.tail ~= '' and '\n' .. how.tail or '') })
  end
  for _, each in ipairs(held) do
    local m = mail.head(each[1])
    if m.state == 'taken' then
      if mail.pointless(m) then mail.take_back(each[1], m, 'what it asks for has ended') else dead.bury(each[1], m, reason) end
    end
  end
  local from = #held > 0 and '-inf' or '(' .. (a.turn_seq or 0)
  if redis.call('ZCOUNT', key.waking(agent), from, '+inf') > 0 then
    turns.plan(agent, 'mail', turns.runner(agent).wake_batch)
  end
  return 'failed'
end

local function failed(agent, a, runner, how)
  if tonumber(a.failures or 0) >= runner.retries then return give_up(agent, a, how) end
  for _, each in ipairs(held_by(agent, a.turn_instance)) do dead.failed(each[1], each[2], how.why) end
  if not turns.work(agent) then
    redis.call('HDEL', key.agent(agent), 'failures')
    return #open_tasks(agent, true) > 0 and 'waits' or 'idle'
  end
  local nth = redis.call('HINCRBY', key.agent(agent), 'failures', 1)
  turns.plan(agent, 'retry', runner.backoff * 2 ^ math.min(nth - 1, 20))
  return 'retried'
end

-- No failure: what it held comes again, uncounted, and its tasks took no turn.
local function put_off(agent, a, delay)
  for _, task in ipairs(open_tasks(agent, true)) do
    if redis.call('HGET', key.task(task), 'counted') == a.turn then redis.call('HINCRBY', key.task(task), 'turns', -1) end
  end
  for _, each in ipairs(held_by(agent, a.turn_instance)) do mail.hand_back(each[1], each[2]) end
  if turns.work(agent) then turns.plan(agent, a.turn_reason, delay) end
end

-- A usage limit of a provider account. One notice to the parent, as long as it lasts.
local function limited(agent, a, runner, how)
  local until_then = tonumber(how.till) and (manual and tonumber(how.till) or timer.on_wall(tonumber(how.till)))
    or now + runner.limit_pause
  until_then = math.max(until_then, now + 1000)
  local shared = type(runner.account) == 'string' and runner.account
  local whose = shared or agent
  local told = (shared and 'limited:account:' or 'limited:agent:') .. whose
  if (tonumber(redis.call('HGET', key.herd(), told)) or 0) <= now then
    mail.notice('msg_limited_' .. agent .. '_' .. a.generation .. '_' .. a.turn, 'parent', false, nil, nil,
      { about = 'limited', agent = agent, account = whose, detail = how.why, until_ms = until_then })
    redis.call('HSET', key.herd(), told, string.format('%.0f', until_then))
  end
  put_off(agent, a, until_then - now)
  return 'parked', until_then
end

-- The end of a turn. `how`: kind (clean, failed, limited, stopped), why, tail, till. What was decided.
function endings.close(agent, how)
  local a = pick(key.agent(agent), { 'state', 'generation', 'runner', 'turn', 'turn_reason', 'turn_instance',
    'turn_since', 'turn_seq', 'failures', 'nudges' })
  redis.call('HINCRBY', key.agent(agent), 'turn_ms', math.floor(math.max(0, (now - a.turn_since) / factor)))
  turns.leave(agent)
  redis.call('HDEL', key.agent(agent), 'turn_token', 'turn_instance', 'turn_stop')
  local runner, decision, till = cjson.decode(a.runner), 'closed', nil
  if a.state == 'open' then
    if how.kind == 'clean' then
      handled(agent, a)
      decision = go_on(agent, a, runner)
    elseif how.kind == 'limited' then
      decision, till = limited(agent, a, runner, how)
    elseif how.kind == 'stopped' then
      put_off(agent, a, runner.wake_batch)
      decision = 'stopped'
    else
      decision = failed(agent, a, runner, how)
    end
  end
  if redis.call('HGET', key.agent(agent), 'turn_state') == 'running' then   -- until here, so that nothing above plans one
    redis.call('HSET', key.agent(agent), 'turn_state', 'none', 'turn_since', now)
  end
  redis.call('HSET', key.agent(agent), 'turn_ended', decision)
  journal('turn_ended', { agent = agent, turn = a.turn, how = how.kind, why = how.why, decided = decision })
  return decision, till, a.turn_instance
end

-- An instance is gone. If it ran the agent's turn, that was lost with it, or, if it left, given back.
function endings.gone(agent, instance, died)
  local a = pick(key.agent(agent), { 'turn_instance', 'turn_state' })
  if a.turn_instance ~= instance or a.turn_state ~= 'running' then return end
  endings.close(agent, died and { kind = 'failed', why = 'its worker died' } or
    { kind = 'stopped', why = 'its worker left' })
end

-- It runs long after it should have been ended: whoever runs it is not heard of it any more.
function endings.overtime(agent)
  local _, _, instance = endings.close(agent, { kind = 'failed', why = 'it ran on after its time-out' })
  lease.gone(agent, instance, true)
  return 1
end
