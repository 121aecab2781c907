-- Plans: tasks that a child is given at planned times. What the calendar says is worked out by who
-- calls (`schedules.py`); here each slot is seen to once. Of a plan's record, `upto` is the moment up to
-- which all its slots were seen to, `next` when it is to be looked at again. States: active, paused;
-- then ended (it has no more slots) or removed, which are off the list and kept for `task_retention`.

function plans.member(id) return args.herd .. '/' .. id end

-- The record of a plan that was not removed, or a refusal.
function plans.need(id)
  local plan = read(key.plan(id))
  if not plan.state then
    refuse('unknown_plan', 'there is no plan ', id, " in herd '", args.herd,
      "'; see `tocsin plan list`")
  end
  return plan
end

-- Why nobody can be given its tasks; nil as long as its child is there.
function plans.gone(plan)
  local child = pick(key.agent(plan.agent), { 'state', 'generation' })
  if child.state ~= 'open' then
    return "agent '" .. plan.agent .. "' was closed; register it again and resume the plan, or remove it"
  elseif child.generation ~= plan.generation then
    return "agent '" .. plan.agent .. "' was closed and its name is used anew; resume the plan for the " ..
      'new one, or remove it'
  end
end

-- When the plan is looked at next; nil: never.
function plans.place(id, at)
  if at then
    redis.call('ZADD', key.planned(), at, plans.member(id))
  else
    redis.call('ZREM', key.planned(), plans.member(id))
  end
end

-- Schedulers look at the plans anew.
function plans.ring() redis.call('PUBLISH', doorbell, 'plan') end

-- The plan gives no more tasks until it is resumed, if ever.
function plans.stop(id, state, reason)
  redis.call('HSET', key.plan(id), 'state', state, 'reason', reason, 'next', '')
  plans.place(id)
  if state ~= 'paused' then
    redis.call('ZREM', key.plans(), id)
    timer.set('9:forget:p:' .. id, now + tonumber(herd.task_retention))
  end
  journal('plan_' .. state, { plan = id, reason = reason })
end

-- A task of the plan, with this id; one that is there already stays as it is.
function plans.delegate(plan, id, task)
  if redis.call('EXISTS', key.task(task)) == 1 then return end
  text.check_envelope(plan.description, '', 'description')
  local queued = delegation.check(plan.agent, plan.queue)
  delegation.give({ id = task, child = plan.agent, generation = plan.generation,
    description = plan.description, deadline = delegation.ends(plan.lasts, ''), watch = plan.watch,
    digest = plan.digest, queued = queued })
  redis.call('HINCRBY', key.plan(id), 'runs', 1)
  redis.call('HSET', key.plan(id), 'last_task', task, 'last_at', now, 'problem', '')
end

-- A plan's facts, and why its child cannot be given tasks.
function plans.row(id)
  local plan = read(key.plan(id))
  local flat = redis.call('HGETALL', key.plan(id))
  return { id, flat, plan.state == 'active' and plans.gone(plan) or '' }
end

-- No scheduler looks at any plan of a herd that is closed.
function plans.withdraw()
  for _, id in ipairs(redis.call('ZRANGE', key.plans(), 0, -1)) do plans.place(id) end
end
