-- What a probe of an agent's work has counted, by source; growth is activity.
-- keys: partition
-- args: clock herd agent token instance totals
-- answers: active | silent
-- moves: none
-- memory: allow-oom
-- include: seat asks

seat.prove()
local known = redis.call('HGET', key.agent(args.agent), 'totals')
local totals, grew = asks.growth(known, args.totals)
redis.call('HSET', key.agent(args.agent), 'totals', totals)
if grew then seat.active() end
return { grew and 'active' or 'silent' }
