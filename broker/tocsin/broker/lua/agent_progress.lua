-- An agent says how far it is: a sign of work, for people and for whoever waits on it.
-- keys: partition
-- args: clock herd agent token instance call text fraction
-- answers: ok
-- moves: none
-- memory: allow-oom
-- include: seat text

seat.prove()
if seat.repeated(args.call) then return { 'ok' } end
text.check('text', args.text, herd.body_limit)
seat.note(args.call)
seat.active()
redis.call('HSET', key.agent(args.agent), 'progress', args.text, 'fraction', args.fraction,
  'progress_at', now)
journal('progress', { agent = args.agent, text = args.text, fraction = args.fraction })
return { 'ok' }
