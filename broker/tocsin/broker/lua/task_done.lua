-- Its owner settles a task. The first outcome stands; another is kept in the journal as late.
-- keys: partition
-- args: clock herd agent token instance task outcome summary error override digest
-- answers: settled <task> | duplicate <task> | late <task>
-- moves: finished gave_up broke
-- memory: allow-oom
-- include: seat timer lease mail tasks requests reminders text attendance turns

seat.prove()
local task = tasks.need(args.task)
if task.agent ~= args.agent or task.generation ~= me.generation then
  refuse('forbidden', 'task ', args.task, " belongs to agent '", task.agent, "'; only its owner ",
    'may say it is done (the parent may cancel it)')
end
if not tasks.is_open(task) then
  if task.done_digest == args.digest then
    return { 'duplicate', redis.call('HGETALL', key.task(args.task)), {} }
  end
  seat.active()
  tasks.late(args.task, 'late_done', args.digest, { task = args.task, agent = args.agent,
    outcome = args.outcome, summary = args.summary, error = args.error })
  return { 'late', redis.call('HGETALL', key.task(args.task)), {} }
end
text.check('summary', args.summary, herd.body_limit)
text.check('error', args.error, herd.body_limit)
text.check('override_reason', args.override, herd.body_limit)
if task.state == 'waiting' and args.outcome == 'completed' and args.override == '' then
  local open = redis.call('ZRANGE', key.questions(args.task), 0, 9)
  refuse('pending_requests', 'task ', args.task, ' still waits for an answer to ',
    table.concat(open, ', '), '; wait for it, or say why it no longer matters (override_reason, --override-reason)')
end
seat.active()
tasks.settle(args.task, args.outcome, { summary = args.summary, error = args.error,
  override = args.override, digest = args.digest })
return { 'settled', redis.call('HGETALL', key.task(args.task)), {} }
