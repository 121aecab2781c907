-- The parent makes a plan: by cron, at one time, or every so often from now on.
-- keys: partition
-- args: clock herd agent token instance plan child description kind rule zone missed queue watch lasts digest
-- answers: planned <plan> | duplicate <plan>
-- moves: none
-- include: seat text plans

seat.prove_parent()
local known = redis.call('HGET', key.plan(args.plan), 'digest')
if known then
  if known ~= args.digest then
    refuse('duplicate_conflict', 'plan ', args.plan, ' was already made with other content; ',
      'use a new id or key for a new plan')
  end
  return { 'duplicate', plans.row(args.plan), now }
end
if args.child == 'parent' then
  refuse('invalid_input', 'a parent plans tasks of its children, not its own')
end
local child = seat.open_agent(args.child)
text.check_envelope(args.description, '', 'description')
if args.kind == 'at' and tonumber(args.rule) <= now then
  refuse('invalid_input', 'at is in the past by the clock of the server; give a later time,',
    ' or delegate the task now')
end
local limit = tonumber(herd.max_plans)
if redis.call('ZCARD', key.plans()) >= limit then
  refuse('queue_full', "herd '", args.herd, "' has ", limit, ' plans, which is its limit (max_plans); ',
    'remove one (`tocsin plan remove`), or raise the limit')
end

-- The first slot of a cron is worked out by the scheduler that looks next.
local first = args.kind == 'at' and args.rule or args.kind == 'every' and now + args.rule or now
seat.active()
redis.call('HSET', key.plan(args.plan), 'agent', args.child, 'generation', child.generation,
  'description', args.description, 'kind', args.kind, 'rule', args.rule, 'zone', args.zone,
  'missed', args.missed, 'queue', args.queue, 'watch', args.watch, 'lasts', args.lasts,
  'digest', args.digest, 'state', 'active', 'reason', '', 'problem', '',
  'created_at', now, 'upto', now, 'next', first, 'runs', 0, 'skipped', 0)
redis.call('ZADD', key.plans(), now, args.plan)
plans.place(args.plan, first)
plans.ring()
journal('planned', { plan = args.plan, agent = args.child, [args.kind] = args.rule, zone = args.zone })
return { 'planned', plans.row(args.plan), now }
