-- The parent drops a dead letter: it is off the list, and its receipt goes as that of handled mail.
-- keys: partition
-- args: clock herd agent token instance message
-- answers: dropped | duplicate
-- moves: none
-- memory: allow-oom
-- include: seat timer mail dead

seat.prove_parent()
local m = read(key.message(args.message))
if m.state == 'withdrawn' and m.dropped_at then return { 'duplicate' } end
dead.need(args.message, m)
redis.call('ZREM', key.dead(), args.message)
local reason = 'dropped from the dead letters, where it was because ' .. m.reason
redis.call('HSET', key.message(args.message), 'state', 'withdrawn', 'dropped_at', now, 'reason', reason)
if m.kind ~= 'request' then redis.call('HDEL', key.message(args.message), 'body', 'data') end
mail.retire(args.message, m.kind == 'request' and tonumber(herd.task_retention))
journal('withdrawn', { message = args.message, kind = m.kind, recipient = m.to, reason = reason })
return { 'dropped' }
