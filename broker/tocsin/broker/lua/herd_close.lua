-- Closes a herd: no new work from this step on, then one bounded sweep. Repeat until closed.
-- keys: partition
-- args: clock herd agent token instance limit
-- answers: closing | closed
-- moves: cancelled released
-- memory: allow-oom
-- include: seat timer lease mail dead tasks requests reminders sweep attendance outbox ties plans turns

seat.prove_parent(true)
sweep.begin()
return { sweep.herd(tonumber(args.limit)) and 'closed' or 'closing' }
