-- An alert was told or given up, and goes; with `pause`, it is tried again in so many ms.
-- keys: partition
-- args: clock herd alert pause
-- answers: ended | again
-- moves: none
-- memory: allow-oom

if args.pause ~= '' then
  redis.call('ZADD', key.alerts(), 'XX', wall + tonumber(args.pause), args.alert)
  return { 'again' }
end
redis.call('ZREM', key.alerts(), args.alert)
redis.call('HDEL', key.alerted(), args.alert, args.alert .. ':tries')
return { 'ended' }
