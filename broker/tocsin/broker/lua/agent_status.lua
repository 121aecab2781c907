-- An agent says whether its process is at work or idle. Moves no task.
-- keys: partition
-- args: clock herd agent token instance call status
-- answers: ok
-- moves: none
-- include: seat

seat.prove()
if seat.repeated(args.call) then return { 'ok' } end
seat.note(args.call)
redis.call('HSET', key.agent(args.agent), 'status', args.status, 'status_at', now)
journal('status', { agent = args.agent, status = args.status })
return { 'ok' }
