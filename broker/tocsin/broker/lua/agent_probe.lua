-- What a probe of an agent's work has counted, by source; growth is activity.
-- keys: partition
-- args: clock herd agent token instance call totals
-- answers: active | silent
-- moves: none
-- memory: allow-oom
-- include: seat asks

seat.prove()
local before = seat.repeated(args.call)
if before then return { before } end
local known = redis.call('HGET', key.agent(args.agent), 'totals')
local totals, grew = asks.growth(known, args.totals)
redis.call('HSET', key.agent(args.agent), 'totals', totals)
seat.note(args.call, grew and 'active' or 'silent')
if grew then seat.active() end
return { grew and 'active' or 'silent' }
