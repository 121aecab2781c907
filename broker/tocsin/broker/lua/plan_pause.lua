-- The parent pauses a plan: its slots pass unused until it is resumed.
-- keys: partition
-- args: clock herd agent token instance plan
-- answers: paused <plan> | duplicate <plan>
-- moves: none
-- memory: allow-oom
-- include: seat timer plans

seat.prove_parent()
local plan = plans.need(args.plan)
if plan.state == 'paused' then return { 'duplicate', plans.row(args.plan), now } end
if plan.state ~= 'active' then
  refuse('wrong_state', 'plan ', args.plan, ' is ', plan.state, ', so there is nothing to pause')
end
plans.stop(args.plan, 'paused', 'by its parent')
plans.ring()
return { 'paused', plans.row(args.plan), now }
