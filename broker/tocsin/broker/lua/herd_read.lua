-- The herd's record, to its parent.
-- keys: partition
-- args: clock herd agent token instance
-- answers: herd <herd record>
-- moves: none
-- memory: allow-oom
-- include: seat

seat.prove(true)
return { 'herd', redis.call('HGETALL', key.herd()) }
