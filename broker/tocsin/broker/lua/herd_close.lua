-- Closes a herd: no new work from this step on, then one bounded sweep. Repeat until closed.
-- keys: partition
-- args: clock herd agent token instance limit
-- answers: closing | closed
-- moves: cancelled released
-- memory: allow-oom
-- include: seat timer lease mail dead tasks requests reminders sweep attendance outbox

seat.prove_parent(true)
if herd.state == 'open' then
  herd.state = 'closing'
  redis.call('HSET', key.herd(), 'state', 'closing')
  journal('closing', {})
end
return { sweep.herd(tonumber(args.limit)) and 'closed' or 'closing' }
