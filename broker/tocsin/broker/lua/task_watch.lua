-- The parent watches tasks: each settlement wakes it, or only the last of them.
-- keys: partition
-- args: clock herd agent token instance tasks wake watch
-- answers: watching <task, its record> of those already settled ...
-- moves: none
-- include: seat tasks

seat.prove_parent()
local wanted, records = cjson.decode(args.tasks), {}
for _, id in ipairs(wanted) do records[id] = tasks.need(id) end
local answer = { 'watching' }
for _, id in ipairs(wanted) do
  local task = records[id]
  if not tasks.is_open(task) then
    answer[#answer + 1] = { id, redis.call('HGETALL', key.task(id)) }
  else
    if task.watch and task.watch ~= '' and task.watch ~= 'each' then
      redis.call('SREM', key.watch(task.watch), id)
    end
    redis.call('HSET', key.task(id), 'watch', args.wake == 'each' and 'each' or args.watch)
    if args.wake ~= 'each' then redis.call('SADD', key.watch(args.watch), id) end
  end
end
return answer
