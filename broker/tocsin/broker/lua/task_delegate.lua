-- The parent delegates a task to a child: into its inbox, or queued until the child has a slot.
-- keys: partition
-- args: clock herd agent token instance task child description lasts ends watch queue continues digest
-- answers: delegated <task> <path that wakes the child, or empty> | duplicate <the same>
-- moves: none
-- include: seat timer lease mail tasks text room delegation turns hosts

seat.prove_parent()
local known = redis.call('HGET', key.task(args.task), 'digest')
if known then
  if known ~= args.digest then
    refuse('duplicate_conflict', 'task ', args.task, ' was already delegated with other content; ',
      'use a new id or key for a new task')
  end
  return { 'duplicate', redis.call('HGETALL', key.task(args.task)), (hosts.path(args.child)) }
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
local queued = delegation.check(args.child, args.queue)
local ends = delegation.ends(args.lasts, args.ends)
local carried
if earlier then
  local question = earlier.question ~= '' and read(key.message(earlier.question)) or {}
  carried = cjson.encode({ continues = { task = args.continues, status = earlier.state,
    description = earlier.description, error = earlier.error, summary = earlier.summary,
    question = question.body, asked = question.to, answer = question.answer } })
end

seat.active()
delegation.give({ id = args.task, child = args.child, generation = child.generation,
  description = args.description, deadline = ends, watch = args.watch, digest = args.digest,
  queued = queued, continues = args.continues, data = carried })
return { 'delegated', redis.call('HGETALL', key.task(args.task)), (hosts.path(args.child)) }
