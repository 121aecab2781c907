-- The parent cancels an open task; of a settled one the first result stands.
-- keys: partition
-- args: clock herd agent token instance task reason
-- answers: settled <task> | late <task>
-- moves: cancelled
-- memory: allow-oom
-- include: seat timer lease mail tasks requests reminders text attendance outbox ties turns

seat.prove_parent()
local task = tasks.need(args.task)
if not tasks.is_open(task) then
  seat.active()
  if task.state ~= 'cancelled' then
    tasks.late(args.task, 'late_cancel', string.sub(args.reason, 1, 200), { task = args.task, reason = args.reason })
  end
  return { 'late', redis.call('HGETALL', key.task(args.task)), {} }
end
text.check('reason', args.reason, herd.body_limit)
seat.active()
tasks.settle(args.task, 'cancelled', { error = args.reason, tell = true })
if task.state ~= 'created' then ties.cancelled(args.task, task.agent) end
return { 'settled', redis.call('HGETALL', key.task(args.task)), {} }
