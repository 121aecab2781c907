-- The parent delegates a task to a child: into its inbox, or queued until the child has a slot.
-- keys: partition
-- args: clock herd agent token instance task child description lasts ends watch queue continues digest
-- answers: delegated <task> | duplicate <task>
-- moves: none
-- include: seat timer lease mail tasks text room

seat.prove_parent()
local known = redis.call('HGET', key.task(args.task), 'digest')
if known then
  if known ~= args.digest then
    refuse('duplicate_conflict', 'task ', args.task, ' was already delegated with other content; ',
      'use a new id or key for a new task')
  end
  return { 'duplicate', redis.call('HGETALL', key.task(args.task)), {} }
end
if args.child == 'parent' then
  refuse('invalid_input', 'a parent delegates to its children, not to itself')
end
local child = seat.open_agent(args.child)
text.check_envelope(args.description, '', 'description')
local earlier
if args.continues ~= '' then
  earlier = tasks.need(args.continues)
  if tasks.is_open(earlier) then
    refuse('wrong_state', 'continues: task ', args.continues, ' is still ', earlier.state,
      '; only an ended task can be continued')
  end
end
local free = redis.call('ZCARD', key.workload(args.child)) < tonumber(herd.max_open_tasks)
if not free and args.queue ~= '1' then
  local held = redis.call('ZRANGE', key.workload(args.child), 0, -1)
  refuse('agent_busy', "agent '", args.child, "' holds ", #held, ' open task(s): ',
    table.concat(held, ', '), '; wait for or cancel one, or have this one queued (queue=True, --queue)')
end
room.check(args.child)

local ends = tonumber(args.ends) or now + (tonumber(args.lasts) or tonumber(herd.task_deadline))
if ends <= now then
  refuse('invalid_input', 'deadline is in the past by the clock of the server; give a later one')
end
if ends - now > 366 * 86400000 then
  refuse('invalid_input', 'deadline is more than 366 days away; give an earlier one')
end
seat.active()
redis.call('HSET', key.task(args.task), 'agent', args.child, 'generation', child.generation,
  'state', 'created', 'description', args.description, 'created_at', now, 'deadline', ends,
  'watch', args.watch == '1' and 'each' or '', 'continues', args.continues, 'digest', args.digest,
  'episode', 0)
redis.call('ZADD', key.tasks(), now, args.task)
timer.set('1:deadline:' .. args.task, ends)
local envelope = { id = 'msg_task_' .. bare(args.task), kind = 'task', sender = 'parent',
  to = args.child, task = args.task, wakes = true, state = not free and 'queued' or nil }
if earlier then
  local question = earlier.question ~= '' and read(key.message(earlier.question)) or {}
  envelope.data = cjson.encode({ continues = { task = args.continues, status = earlier.state,
    description = earlier.description, error = earlier.error, summary = earlier.summary,
    question = question.body, asked = question.to, answer = question.answer } })
end
journal('delegated', { task = args.task, agent = args.child, queued = not free or nil })
if free then
  redis.call('ZADD', key.workload(args.child), now, args.task)
  mail.send(envelope)
  if not lease.live(args.child) then lease.absent(args.child) end
else
  redis.call('ZADD', key.queue(args.child), now, args.task)
  mail.record(envelope)
end
return { 'delegated', redis.call('HGETALL', key.task(args.task)), {} }
