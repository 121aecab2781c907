-- The parent takes mail from an instance that is alive and stuck, for any other of that agent. No
-- attempt is counted, and what the old holder still says of it is fenced.
-- keys: partition
-- args: clock herd agent token instance message call
-- answers: handed_back <who held it> <its state now> | duplicate <the same>
-- moves: none
-- memory: allow-oom
-- include: seat timer mail tasks requests turns

seat.prove_parent()
local m = mail.need(args.message)
if m.handing == args.call then return { 'duplicate', m.handed_from, m.state } end
if m.state ~= 'taken' then
  refuse('wrong_state', 'message ', args.message, ' is ', m.state,
    '; only what an instance has taken can be handed back')
end
redis.call('HSET', key.message(args.message), 'handing', args.call, 'handed_from', m.by)
journal('handed_back', { message = args.message, agent = m.to, instance = m.by })
mail.hand_back(args.message, m)
return { 'handed_back', m.by, redis.call('HGET', key.message(args.message), 'state') }
