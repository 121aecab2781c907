-- The herds of a partition, oldest first.
-- keys: partition
-- args: clock herd
-- answers: herds <name, state, tasks kept> ...
-- moves: none
-- memory: allow-oom

local answer = { 'herds' }
for _, name in ipairs(redis.call('ZRANGE', key.herds(), 0, -1)) do
  args.herd = name
  answer[#answer + 1] = { name, redis.call('HGET', key.herd(), 'state') or 'lost',
    redis.call('ZCARD', key.tasks()) }
end
return answer
