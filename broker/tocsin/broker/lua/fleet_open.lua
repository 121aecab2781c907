-- Records the fleet's shape at first use, and tells every later client of it.
-- keys: fleet
-- args: partitions factor schema
-- answers: fleet <partitions> <base ms, empty: no scaled clock> <factor> <schema>
-- moves: none
-- memory: allow-oom

local known = redis.call('HMGET', KEYS[1], 'partitions', 'base', 'factor', 'schema')
if not known[1] then
  local base = ''
  if args.factor ~= '' then
    local time = redis.call('TIME')
    base = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
  end
  redis.call('HSET', KEYS[1], 'partitions', args.partitions, 'base', base, 'factor', args.factor,
    'schema', args.schema)
  known = { args.partitions, base, args.factor, args.schema }
end
return { 'fleet', known[1], known[2], known[3], known[4] }
