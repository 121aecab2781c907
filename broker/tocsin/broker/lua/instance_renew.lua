-- Renews a lease, and looks at the agent's other instances.
-- keys: partition
-- args: clock herd agent token instance version loops
-- answers: renewed <length of a lease, ms> <how often it is renewed, ms>
-- moves: broke released
-- memory: allow-oom
-- include: seat timer lease mail dead tasks requests reminders asks attendance outbox turns endings

seat.prove()
lease.touch()
lease.runs(args.version, args.loops)
lease.look(args.agent)
return { 'renewed', herd.lease, herd.lease_renewal }
