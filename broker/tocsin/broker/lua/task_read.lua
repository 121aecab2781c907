-- The named tasks, each with its open questions: to the parent, or to the child whose they are.
-- keys: partition
-- args: clock herd agent token instance tasks
-- answers: tasks <task, its record, its questions> ...
-- moves: none
-- memory: allow-oom
-- include: seat tasks

seat.prove(true)
local answer = { 'tasks' }
for _, id in ipairs(cjson.decode(args.tasks)) do
  tasks.own(id)
  answer[#answer + 1] = { id, redis.call('HGETALL', key.task(id)),
    redis.call('ZRANGE', key.questions(id), 0, 99) }
end
return answer
