-- Begins a turn, for the instance that names it first: whose job it is decides here, and nobody else can
-- any more. `token` is made for this turn alone, and proves the agent while it runs.
-- keys: partition
-- args: clock herd agent token instance turn version
-- answers: claimed <generation> <herd record> <fields of the agent's record> | over
-- moves: broke
-- memory: allow-oom
-- include: timer lease mail tasks requests turns reminders attendance

load_herd()
local a = pick(key.agent(args.agent), { 'state', 'generation', 'turn', 'turn_state', 'turn_token', 'turn_reason',
  'runner', 'failures', 'session' })
if herd.state ~= 'open' or a.state ~= 'open' or a.turn ~= args.turn then return { 'over' } end
local function claimed()
  return { 'claimed', a.generation, redis.call('HGETALL', key.herd()),
    { 'runner', a.runner, 'reason', a.turn_reason, 'attempt', (a.failures or 0) + 1, 'session', a.session or '' } }
end
if a.turn_state == 'running' and a.turn_token == args.token then return claimed() end   -- its answer was lost
if a.turn_state ~= 'due' and a.turn_state ~= 'launched' then return { 'over' } end

local runner = cjson.decode(a.runner)
for _, task in ipairs(redis.call('ZRANGE', key.workload(args.agent), 0, -1)) do
  local state = redis.call('HGET', key.task(task), 'state')
  if state == 'created' or state == 'running' then
    redis.call('HSET', key.task(task), 'counted', args.turn)   -- if it is put off, this is taken back
    if redis.call('HINCRBY', key.task(task), 'turns', 1) > runner.max_turns then
      tasks.settle(task, 'failed', { error = 'it took ' .. runner.max_turns .. ' turns, which is all it may (max_turns)' })
    end
  end
end
if not turns.work(args.agent) then
  turns.drop(args.agent)
  return { 'over' }
end
turns.begin(args.turn, runner)
lease.touch()
lease.runs(args.version, 'turning')
return claimed()
