-- The parent has a plan give its task now, beside its slots, also while it is paused.
-- keys: partition
-- args: clock herd agent token instance plan task
-- answers: delegated <task> | duplicate <task>
-- moves: none
-- include: seat timer lease mail text room delegation plans turns

seat.prove_parent()
local plan = plans.need(args.plan)
if redis.call('EXISTS', key.task(args.task)) == 1 then
  return { 'duplicate', redis.call('HGETALL', key.task(args.task)), {} }
end
if plan.state ~= 'active' and plan.state ~= 'paused' then
  refuse('wrong_state', 'plan ', args.plan, ' is ', plan.state, ' and gives no more tasks; make a new one')
end
local why = plans.gone(plan)
if why then refuse('agent_closed', why) end
seat.active()
plans.delegate(plan, args.plan, args.task)
return { 'delegated', redis.call('HGETALL', key.task(args.task)), {} }
