-- The newest tasks, of one state or of all: the herd's to its parent, its own to a child.
-- keys: partition
-- args: clock herd agent token instance state limit
-- answers: tasks <task, its record (empty: it cannot be read), its questions> ...
-- moves: none
-- memory: allow-oom
-- include: seat tasks

seat.prove(true)
local answer, page, from, limit = { 'tasks' }, {}, 0, tonumber(args.limit)
repeat
  page = redis.call('ZREVRANGE', key.tasks(), from, from + 99)
  for _, id in ipairs(page) do
    local ok, task = pcall(pick, key.task(id), { 'state', 'agent', 'generation' })
    local wanted = ok and task.state and (args.state == '' or task.state == args.state)
    if not ok and args.agent == 'parent' and #answer <= limit then
      answer[#answer + 1] = { id, {}, {} }
    elseif wanted and tasks.visible(task) and #answer <= limit then
      answer[#answer + 1] = { id, redis.call('HGETALL', key.task(id)),
        redis.call('ZRANGE', key.questions(id), 0, 99) }
    end
  end
  from = from + 100
until #page < 100 or #answer > limit
return answer
