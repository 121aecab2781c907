-- The parent removes a plan: it gives no more tasks. Those that it gave stay as they are.
-- keys: partition
-- args: clock herd agent token instance plan
-- answers: removed <plan> | duplicate <plan>
-- moves: none
-- memory: allow-oom
-- include: seat timer plans

seat.prove_parent()
local plan = plans.need(args.plan)
if plan.state == 'removed' then return { 'duplicate', plans.row(args.plan), now } end
plans.stop(args.plan, 'removed', 'by its parent')
plans.ring()
return { 'removed', plans.row(args.plan), now }
