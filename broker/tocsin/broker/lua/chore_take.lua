-- Takes a chore of the fleet for one of its slots; whoever asks later finds it taken.
-- keys: partition
-- args: clock herd chore slot
-- answers: taken | done
-- moves: none
-- memory: allow-oom

local last = redis.call('HGET', partition, 'chore:' .. args.chore)
if last and tonumber(last) >= tonumber(args.slot) then return { 'done' } end
redis.call('HSET', partition, 'chore:' .. args.chore, args.slot)
return { 'taken' }
