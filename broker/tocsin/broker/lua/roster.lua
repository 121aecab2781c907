-- Every agent of the herd: record, live instances, open and queued tasks, who it waits on, herds it leads.
-- keys: partition
-- args: clock herd agent token instance
-- answers: roster <agent, record, instances, tasks, queued, unread, asked, asking, herds, wake path, sessions> ...
-- moves: none
-- memory: allow-oom
-- include: seat mail hosts ties

seat.prove(true)
-- What of an agent's record anybody of the herd may see; its token's hash would prove that agent.
local SHOWN = { 'state', 'generation', 'role', 'label', 'status', 'registered_at', 'active_at',
  'progress', 'fraction', 'runner', 'turn', 'turn_state', 'turn_reason', 'turn_since', 'turn_ended', 'failures',
  'wakes', 'turns', 'characters', 'turn_ms' }
local function shown(agent)
  local flat = {}
  for field, value in pairs(pick(key.agent(agent), SHOWN)) do
    if field == 'runner' then   -- what it runs and where, not the values of variables, which may be secrets
      local runner = cjson.decode(value)
      value = cjson.encode({ kind = runner.kind, profile = runner.profile, queue = runner.queue,
        account = runner.account, command = runner.command and { runner.command[1] }, ['function'] = runner['function'] })
    end
    flat[#flat + 1] = field
    flat[#flat + 1] = value
  end
  return flat
end

local function row(agent)
  local path, sessions = hosts.path(agent)
  return {
    agent,
    shown(agent),
    redis.call('ZRANGEBYSCORE', key.instances(agent), '(' .. string.format('%.0f', wall), '+inf'),
    redis.call('ZRANGE', key.workload(agent), 0, -1),
    redis.call('ZRANGE', key.queue(agent), 0, -1),
    mail.unread(agent),
    redis.call('ZRANGE', key.asked(agent), 0, 99),
    redis.call('ZRANGE', key.asking(agent), 0, 99),
    ties.led(agent),
    path,
    hosts.rows(sessions),
  }
end

local answer = { 'roster' }
for _, agent in ipairs(redis.call('ZRANGE', key.agents(), 0, -1)) do
  local ok, found = pcall(row, agent)
  answer[#answer + 1] = ok and found or { agent, {}, {}, {}, {}, 0, {}, {}, {}, '', {} }   -- something was written over
end
return answer
