-- Slots that were given back are free where they are counted.
-- keys: partition
-- args: clock herd slots
-- answers: noted
-- moves: none
-- memory: allow-oom

redis.call('ZREM', key.freed(), unpack(cjson.decode(args.slots)))
return { 'noted' }
