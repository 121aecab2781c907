-- Ties: a herd that an agent of another herd leads is under that agent. Each of the two herds has a
-- record of it, and follows the other's by what the outbox carries. That says each time all there is
-- to know, so one that comes twice or late does no harm, and repair sends those that were lost anew:
--   <herd over>/0<number>/@tie/claim                  the herd under says what it takes itself for
--   <herd under>/0<number>/@tie/<agent>.<generation>  the herd over says how that agent stands
-- In the record of the herd under: `under` (<herd>/<agent>), `under_opened` and `under_generation`
-- (which of these names), `under_task` (the one it serves; empty: whatever that agent does), `levels`
-- (of herds that may be under it), `tie` (claimed, tied or orphaned), `tie_reason`, `tie_at` (when that
-- was last heard), `cancelled_to`. In the herd over: the agent's `leads` (when each last claimed, and
-- its task; with a '-' in front, since when it is being opened; with a '~', when it was looked for, since
-- it was not heard of after that), its `cancelled_at` and `cancelled_task`.

-- What is being opened may take so long, in real ms; one not heard of by then may never have been made.
local OPENING = 60000

-- Whether what an agent's list says of a herd under it has stood there for so long.
local function settled(said)
  local at = tonumber(string.match(said or '', '^[-~]?(%d+)')) or 0
  return (now - at) / factor >= OPENING
end

local function claimed(said) return said and not string.find(said, '^[-~]') end

-- The herd under says that it is there, or has ended.
function ties.claim()
  if herd.under then outbox.tie({ (outbox.split(herd.under)) }, 'claim') end
end

-- The herds under an agent, of those that were heard of.
function ties.led(agent)
  local flat, led = redis.call('HGETALL', key.leads(agent)), {}
  for i = 1, #flat, 2 do
    if claimed(flat[i + 1]) then led[#led + 1] = flat[i] end
  end
  return led
end

-- A herd is being opened under an agent, and counts from now on: many may be before one was heard of.
function ties.open(agent, under, task)
  local said = string.format('-%.0f %s', now, task)
  if redis.call('HSETNX', key.leads(agent), under, said) == 0 and
    string.sub(redis.call('HGET', key.leads(agent), under), 1, 1) == '~' then
    redis.call('HSET', key.leads(agent), under, said)   -- what is heard of the look before says nothing of this one
  end
end

-- The herds under an agent hear how it stands.
function ties.tell(agent)
  local led = redis.call('HKEYS', key.leads(agent))
  if #led == 0 then return end
  outbox.tie(led, agent .. '.' .. (redis.call('HGET', key.agent(agent), 'generation') or 0))
end

-- A task that its agent had begun was cancelled, and with it what the herds under it do for it.
function ties.cancelled(id, agent)
  redis.call('HSET', key.agent(agent), 'cancelled_at', now, 'cancelled_task', id)
  ties.tell(agent)
end

-- What a herd under is told of its agent's tasks: the last that was cancelled of those it serves.
local function last_cancel(claim, agent)
  local id = claim.task ~= '' and claim.task or agent.cancelled_task
  local task = id and pick(key.task(id), { 'state', 'settled_at', 'error' }) or {}
  if claim.task == '' then return agent.cancelled_at or '', id or '', task.error or '' end
  if task.state ~= 'cancelled' then return '', '', '' end
  return task.settled_at, id, task.error or ''
end

-- How an agent of this herd stands to a herd under it. `claim`: agent generation opened task, and of
-- the herd under itself by (who opened it). The answer: 'tied', 'closed' (that one closes, too) or
-- 'orphaned', and why; by; when a task that it serves was last cancelled, which, and why.
function ties.verdict(claim)
  local function say(how, why, at, task, error)
    return { how, why, claim.by or '', at or '', task or '', error or '' }
  end
  if not herd.state then return say('orphaned', 'there is no herd ' .. args.herd .. ' any more') end
  if herd.opened_by ~= claim.opened then
    return say('orphaned', 'herd ' .. args.herd .. ' is another than the one of that name it was opened under')
  end
  if herd.state ~= 'open' then return say('closed', 'herd ' .. args.herd .. ' was closed') end
  local agent = pick(key.agent(claim.agent), { 'state', 'generation', 'cancelled_at', 'cancelled_task' })
  local name = args.herd .. '/' .. claim.agent
  if not agent.state then return say('orphaned', 'there is no agent ' .. name .. ' any more') end
  if agent.generation ~= claim.generation then
    return say('orphaned', 'agent ' .. name .. ' is of another generation than the one it was opened under')
  end
  if agent.state ~= 'open' then return say('closed', 'agent ' .. name .. ' was closed') end
  return say('tied', '', last_cancel(claim, agent))
end

-- A herd claims to be under an agent of this one, which lists it until it has ended.
function ties.judge(under, claim)
  local verdict = ties.verdict(claim)
  if verdict[1] ~= 'tied' then return verdict end
  if claim.state == 'closed' then
    if redis.call('HDEL', key.leads(claim.agent), under) == 1 then
      journal('herd_ended', { agent = claim.agent, under = under })
    end
  else
    local known = redis.call('HGET', key.leads(claim.agent), under)
    redis.call('HSET', key.leads(claim.agent), under, string.format('%.0f %s', now, claim.task))
    if not claimed(known) then journal('herd_under', { agent = claim.agent, under = under }) end
  end
  return verdict
end

-- What is carried, as it is at this moment. An agent of an earlier generation was closed.
function ties.carried(other, what)
  load_herd()
  if what == 'claim' then
    local _, agent = outbox.split(herd.under)
    return cjson.encode({ agent = agent or '', generation = herd.under_generation or '', task = herd.under_task or '',
      opened = herd.under_opened or '', by = herd.opened_by, state = herd.state })
  end
  local agent, generation = string.match(what, '^(.*)%.(%d+)$')
  local claim = { agent = agent, generation = generation, opened = herd.opened_by,
    task = string.match(redis.call('HGET', key.leads(agent), other) or '', ' (.+)$') or '' }
  local verdict = ties.verdict(claim)
  local newest = redis.call('HGET', key.agent(agent), 'generation') or (tonumber(herd.generations) or 0) + 1
  if herd.state and verdict[1] == 'orphaned' and tonumber(generation) < tonumber(newest) then
    verdict[1], verdict[2] = 'closed', 'agent ' .. args.herd .. '/' .. agent .. ' was closed'
  end
  return cjson.encode({ agent = agent, generation = generation, opened = herd.opened_by, verdict = verdict })
end

-- Repair: what was not heard of for so long is asked anew, from either side.
local PATIENCE = 300000

function ties.refresh()
  if herd.under and herd.state ~= 'closed' and now - (tonumber(herd.tie_at) or 0) >= PATIENCE then ties.claim() end
end

function ties.look(agent, under)
  local said = redis.call('HGET', key.leads(agent), under)
  local at = string.match(said or '', '^%d+')
  if claimed(said) and now - (tonumber(at) or 0) < 3 * PATIENCE or not settled(said) then return end
  outbox.tie({ under }, agent .. '.' .. redis.call('HGET', key.agent(agent), 'generation'))
end

-- The same of those that were to be opened and were not heard of, once a minute: who wants to open more
-- does not wait for repair.
function ties.look_for(agent)
  local flat = redis.call('HGETALL', key.leads(agent))
  for i = 1, #flat, 2 do
    local under, said = flat[i], flat[i + 1]
    if not claimed(said) and settled(said) then
      ties.look(agent, under)
      redis.call('HSET', key.leads(agent), under, string.format('~%.0f%s', now, string.match(said, ' .*$') or ' '))
    end
  end
end

-- The herd under is not there any more, or under somebody else; or it is only just being opened.
function ties.over(other, what)
  local agent, generation = string.match(what, '^(.*)%.(%d+)$')
  local said = redis.call('HGET', key.leads(agent), other) or ''
  if redis.call('HGET', key.agent(agent), 'generation') == generation and
    (string.sub(said, 1, 1) == '~' or settled(said)) then
    redis.call('HDEL', key.leads(agent), other)
  end
end
