-- The herds of a partition, oldest first.
-- keys: partition
-- args: clock herd
-- answers: herds <name, state, tasks kept, what it says of where it is under> ...
-- moves: none
-- memory: allow-oom

local answer = { 'herds' }
for _, name in ipairs(redis.call('ZRANGE', key.herds(), 0, -1)) do
  args.herd = name
  answer[#answer + 1] = { name, redis.call('HGET', key.herd(), 'state') or 'lost',
    redis.call('ZCARD', key.tasks()), redis.call('HMGET', key.herd(), 'under', 'under_opened',
    'under_generation', 'under_task', 'tie', 'tie_reason') }
end
return answer
