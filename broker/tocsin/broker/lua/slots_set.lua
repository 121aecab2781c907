-- How many turns a fleet, a queue or an account may have at once; and until when an account's are paused.
-- keys: fleet
-- args: scope limit paused
-- answers: set
-- moves: none
-- memory: allow-oom

local field = args.scope == 'fleet' and 'slots' or 'slots:' .. args.scope
if args.limit == 'default' then
  redis.call('HDEL', KEYS[1], field)
elseif args.limit ~= '' then
  redis.call('HSET', KEYS[1], field, args.limit)
end
local paused = 'paused:' .. args.scope
if args.paused == '0' then
  redis.call('HDEL', KEYS[1], paused)
elseif args.paused ~= '' then
  redis.call('HSET', KEYS[1], paused, args.paused)
end
return { 'set' }
