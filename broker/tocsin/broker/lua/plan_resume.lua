-- The parent has a paused plan go on from now; for whoever has its child's name today.
-- keys: partition
-- args: clock herd agent token instance plan
-- answers: resumed <plan> | duplicate <plan>
-- moves: none
-- include: seat plans

seat.prove_parent()
local plan = plans.need(args.plan)
if plan.state == 'active' and not plans.gone(plan) then
  return { 'duplicate', plans.row(args.plan), now }
end
if plan.state ~= 'active' and plan.state ~= 'paused' then
  refuse('wrong_state', 'plan ', args.plan, ' is ', plan.state, ' and gives no more tasks; make a new one')
end
local child = seat.open_agent(plan.agent)
if plan.kind == 'at' and tonumber(plan.rule) <= now then
  refuse('wrong_state', 'the time of plan ', args.plan, ' has passed; have it run now ',
    '(`tocsin plan run-now`), or make a new one')
end
redis.call('HSET', key.plan(args.plan), 'state', 'active', 'reason', '', 'generation', child.generation,
  'upto', now, 'next', now)
plans.place(args.plan, now)
plans.ring()
journal('plan_resumed', { plan = args.plan, agent = plan.agent })
return { 'resumed', plans.row(args.plan), now }
