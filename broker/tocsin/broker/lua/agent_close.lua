-- Closes a child: no new work from this step on, then one bounded sweep. Repeat until closed.
-- keys: partition
-- args: clock herd agent token instance target reason limit
-- answers: closing | closed
-- moves: cancelled released
-- memory: allow-oom
-- include: seat timer lease mail dead tasks requests reminders sweep text attendance outbox ties turns

seat.prove_parent()
if args.target == 'parent' then
  refuse('forbidden', 'a parent ends with its herd; close the herd instead')
end
text.check('reason', args.reason, herd.body_limit)
local target = seat.agent(args.target)
if target.state == 'closed' then return { 'closed' } end
if target.state == 'open' then
  seat.active()
  redis.call('HSET', key.agent(args.target), 'state', 'closing', 'reason', args.reason)
  journal('closing', { agent = args.target, reason = args.reason })
end
return { sweep.agent(args.target, tonumber(args.limit)) and 'closed' or 'closing' }
