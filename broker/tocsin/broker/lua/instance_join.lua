-- Starts an instance of an agent, or renews the lease of a stateless caller.
-- keys: partition
-- args: clock herd agent token instance version loops
-- answers: joined <generation> <herd record>
-- moves: broke released
-- memory: allow-oom
-- include: seat timer lease mail dead tasks requests reminders asks attendance outbox turns endings

seat.prove()
lease.touch()
lease.runs(args.version, args.loops)
lease.look(args.agent)
return { 'joined', me.generation, redis.call('HGETALL', key.herd()) }
