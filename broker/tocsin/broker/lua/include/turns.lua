-- Turns of agents that have a `runner` and so need no process of their own. In the agent's record:
--   turn         the number of the last turn; turn_reason mail, nudge or retry; turn_since
--   turn_state   none, due (also while mail is gathered, or it is put off), launched, running. It is
--                there if there is a runner, and only then
--   turn_token, turn_instance, turn_stop   of one that runs: what proves it, who runs it, why it has to stop
--   failures, nudges   in a row; session, as the runner last told it; turn_ended, what was decided then, and
--                turn_report, the same by the token of who said so
--   wakes, turns, characters, turn_ms   counted for ever
-- When its time comes, by the timer 6:turn:<agent>, a turn stands in the partition's `launches` of its
-- lane (queue/account), from where a scheduler puts it into that queue. Those that are launched or run
-- are the herd's `turning`; where these are as many as may be, others are `held` until one has ended.
-- Slots of a fleet, queue and account are counted in another place of the store (`slots_take`): a turn
-- that gives its own back is `freed` here, which a scheduler carries over.

local LANE = '^([^/]+)/([^/]+)$'

function turns.runner(agent)
  return cjson.decode(redis.call('HGET', key.agent(agent), 'runner'))
end

local function lane_of(runner)
  return runner.queue .. '/' .. (type(runner.account) == 'string' and runner.account or '-')
end

-- How turns are called where slots are counted.
local function slot(agent, lane, turn) return lane .. '/' .. args.herd .. '/' .. agent .. '/' .. turn end

-- Whether there is anything to do in a turn: mail that wakes, or open work that nothing else moves on.
function turns.work(agent)
  if redis.call('ZCARD', key.waking(agent)) > 0 then return 'mail' end
  for _, task in ipairs(redis.call('ZRANGE', key.workload(agent), 0, 99)) do
    local state = redis.call('HGET', key.task(task), 'state')
    if state == 'running' or state == 'created' then return 'task' end
  end
end

-- The next turn is due in so many ms.
function turns.plan(agent, reason, delay)
  redis.call('HINCRBY', key.agent(agent), 'turn', 1)
  redis.call('HSET', key.agent(agent), 'turn_state', 'due', 'turn_reason', reason, 'turn_since', now)
  timer.set('6:turn:' .. agent, now + delay)
end

-- Mail that wakes has come. A turn that is due takes it along; one that runs is followed by another.
function turns.wake(agent, state)
  redis.call('HINCRBY', key.agent(agent), 'wakes', 1)
  if state == 'none' then turns.plan(agent, 'mail', turns.runner(agent).wake_batch) end
end

-- Puts a turn among those to be launched. A herd's turns are spaced, so that the only one of another
-- herd comes after one of each, not after all of one: `launch_tag` is its last, `launched_tag` how far all are.
local function enlist(agent)
  local lane = lane_of(turns.runner(agent))
  local far = tonumber(redis.call('HGET', partition, 'launched_tag')) or 0
  local last = tonumber(redis.call('HGET', key.herd(), 'launch_tag')) or 0
  local tag = math.max(far, last) + 1
  redis.call('HSET', key.herd(), 'launch_tag', tag)
  redis.call('HSET', key.agent(agent), 'turn_lane', lane)
  redis.call('ZADD', key.launches(lane), tag, args.herd .. '/' .. agent)
  redis.call('ZADD', key.lanes(), 'NX', now, lane)
  redis.call('PUBLISH', doorbell, 'launch')
end

local function delist(agent, lane)
  redis.call('ZREM', key.launches(lane), args.herd .. '/' .. agent)
  if redis.call('EXISTS', key.launches(lane)) == 0 then redis.call('ZREM', key.lanes(), lane) end
end

-- How many more turns of the herd may be launched.
local function free(limit) return tonumber(limit) - redis.call('ZCARD', key.turning()) end

-- Turns that were held have their time, as many as the herd has a place for.
function turns.admit()
  local more = free(herd.turns_at_once)
  for _, next in ipairs(more > 0 and redis.call('ZRANGE', key.held(), 0, more - 1) or {}) do
    timer.set('6:turn:' .. next, now)
  end
end

-- A turn is not to be launched any more, or has ended; others that were held may take its place.
function turns.leave(agent)
  local known = pick(key.agent(agent), { 'turn', 'turn_lane' })
  timer.clear('6:turn:' .. agent)
  redis.call('ZREM', key.held(), agent)
  redis.call('ZREM', key.turning(), agent)
  if not known.turn_lane then return end
  delist(agent, known.turn_lane)
  redis.call('HDEL', key.agent(agent), 'turn_lane')
  redis.call('ZADD', key.freed(), wall, slot(agent, known.turn_lane, known.turn))
  redis.call('PUBLISH', doorbell, 'launch')
  turns.admit()
end

-- A turn that was due comes to nothing.
function turns.drop(agent)
  turns.leave(agent)
  redis.call('HSET', key.agent(agent), 'turn_state', 'none', 'turn_since', now)
end

-- Its time has come: it was gathered, put off or held until now; or it was launched, and nobody came.
function turns.due(agent)
  local known = pick(key.agent(agent), { 'state', 'turn_state' })
  if known.turn_state == 'running' then return endings.overtime(agent) end
  if known.turn_state ~= 'due' and known.turn_state ~= 'launched' then return 0 end
  if known.state ~= 'open' or not turns.work(agent) then
    turns.drop(agent)
    return 1
  end
  redis.call('ZREM', key.held(), agent)
  redis.call('ZREM', key.turning(), agent)
  redis.call('HSET', key.agent(agent), 'turn_state', 'due')
  enlist(agent)
  return 1
end

-- Turns of a lane to be launched, by their places in it, each with what a scheduler needs for it. What
-- is not to be launched any more goes; what its herd has no place for is held.
function turns.next(lane, limit)
  local found, left = {}, {}
  local far = tonumber(redis.call('HGET', partition, 'launched_tag')) or 0
  local listed = redis.call('ZRANGE', key.launches(lane), 0, limit - 1, 'WITHSCORES')
  for i = 1, #listed, 2 do
    local agent
    args.herd, agent = string.match(listed[i], LANE)
    local ok, known = pcall(pick, key.agent(agent), { 'turn', 'turn_state', 'turn_lane', 'turn_reason', 'runner' })
    if not ok or known.turn_state ~= 'due' or known.turn_lane ~= lane then
      delist(agent, lane)
    else
      load_herd()
      left[args.herd] = (left[args.herd] or free(herd.turns_at_once)) - 1
      if left[args.herd] >= 0 then
        local runner = cjson.decode(known.runner)
        found[#found + 1] = { args.herd, agent, known.turn, lane, known.turn_reason,
          string.format('%.0f', listed[i + 1] - far),
          runner.claim_within + runner.turn_timeout + runner.stop_grace + 60000,
          redis.call('ZRANGE', key.workload(agent), 0, 0)[1] or '' }
      elseif free(herd.turns_at_once) <= 0 then
        delist(agent, lane)
        redis.call('ZADD', key.held(), 'NX', now, agent)
      end
    end
  end
  return found
end

-- It stands in its queue. If nobody begins it in time, it is launched again.
function turns.launched(agent, lane)
  local tag = redis.call('ZSCORE', key.launches(lane), args.herd .. '/' .. agent)
  if tag and tonumber(tag) > (tonumber(redis.call('HGET', partition, 'launched_tag')) or 0) then
    redis.call('HSET', partition, 'launched_tag', tag)
  end
  delist(agent, lane)
  redis.call('ZADD', key.turning(), now, agent)
  redis.call('HSET', key.agent(agent), 'turn_state', 'launched', 'turn_since', now)
  timer.set('6:turn:' .. agent, now + turns.runner(agent).claim_within)
end

-- The caller's instance begins it. Nobody else can from here on.
function turns.begin(number, runner)
  local known = pick(key.agent(args.agent), { 'turn_lane', 'turn_reason' })
  local lane = known.turn_lane or lane_of(runner)
  delist(args.agent, lane)
  if known.turn_reason == 'mail' then redis.call('HDEL', key.agent(args.agent), 'nudges') end
  redis.call('HSET', key.agent(args.agent), 'turn_state', 'running', 'turn_since', now, 'turn_token', args.token,
    'turn_instance', args.instance, 'turn_lane', lane, 'turn_seq', herd.seq or 0)
  redis.call('HINCRBY', key.agent(args.agent), 'turns', 1)
  redis.call('ZREM', key.held(), args.agent)
  redis.call('ZADD', key.turning(), now, args.agent)
  timer.set('6:turn:' .. args.agent, now + runner.turn_timeout + runner.stop_grace + 60000)
  journal('turn_began', { agent = args.agent, turn = number, instance = args.instance, reason = known.turn_reason })
end

-- Asks a turn that runs to end: its task has ended, or its agent.
function turns.stop(agent, why)
  if redis.call('HGET', key.agent(agent), 'turn_state') ~= 'running' then return end
  redis.call('HSET', key.agent(agent), 'turn_stop', why)
  mail.ring(agent, 'stop')
end

-- Gives an agent a runner, another one, or none.
function turns.employ(agent, runner)
  if runner == '' then
    turns.stop(agent, 'it has no runner any more')
    turns.drop(agent)
    redis.call('HDEL', key.agent(agent), 'runner', 'turn_state', 'turn_token', 'turn_instance')
    return
  end
  unemployed[agent] = nil
  local known = pick(key.agent(agent), { 'turn_state', 'turn_lane', 'turn_reason', 'turn_ended', 'runner' })
  redis.call('HSET', key.agent(agent), 'runner', runner)
  local moved = known.turn_lane and known.turn_lane ~= lane_of(cjson.decode(runner))
  if moved and (known.turn_state == 'due' or known.turn_state == 'launched') then
    turns.leave(agent)
    turns.plan(agent, known.turn_reason, 0)   -- a job that stands in the old queue is none of this one
  elseif known.turn_state == 'due' and not known.turn_lane and known.turn_ended == 'parked' and
    cjson.decode(known.runner).account ~= cjson.decode(runner).account then
    timer.set('6:turn:' .. agent, now)   -- it was parked by a limit of the account of before
  end
  if redis.call('HSETNX', key.agent(agent), 'turn_state', 'none') == 1 and turns.work(agent) then
    turns.plan(agent, 'mail', cjson.decode(runner).wake_batch)
  end
end
