-- The parent replays a dead letter: the same message to the same agent, its attempts forgotten.
-- What its death ended stays ended: a question's wait is not opened again, an answer to it is late.
-- keys: partition
-- args: clock herd agent token instance message replay
-- answers: replayed <recipient> <what became of the question> | duplicate <the same>
-- moves: none
-- include: seat timer mail dead tasks requests turns

seat.prove_parent()
local m = read(key.message(args.message))
if m.replay == args.replay then return { 'duplicate', m.to, m.request or '' } end
dead.need(args.message, m)
local obstacle = dead.obstacle(args.message, m)
if obstacle then refuse('wrong_state', 'message ', args.message, ' cannot be replayed: ', obstacle) end
redis.call('ZREM', key.dead(), args.message)
timer.clear('9:forget:m:' .. args.message)
redis.call('HSET', key.message(args.message), 'attempts', 0, 'replay', args.replay, 'replayed_at', now)
redis.call('HDEL', key.message(args.message), 'reason', 'error', 'ended_at', 'shown_at', 'taken_at')
mail.add(args.message, m.to, m.delivery, m.wakes == '1')
journal('replayed', { message = args.message, kind = m.kind, sender = m.sender, recipient = m.to })
return { 'replayed', m.to, m.request or '' }
