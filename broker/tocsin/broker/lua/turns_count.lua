-- How many turns of a partition are due and wait to be launched, in their lanes or for their herd, and how
-- many are launched or run.
-- keys: partition
-- args: clock herd
-- answers: counted <to be launched> <held> <launched or running>
-- moves: none
-- memory: allow-oom

local due, held, turning = 0, 0, 0
for _, lane in ipairs(redis.call('ZRANGE', key.lanes(), 0, -1)) do
  due = due + redis.call('ZCARD', key.launches(lane))
end
for _, herd_name in ipairs(redis.call('ZRANGE', key.herds(), 0, -1)) do
  args.herd = herd_name
  held, turning = held + redis.call('ZCARD', key.held()), turning + redis.call('ZCARD', key.turning())
end
return { 'counted', due, held, turning }
