-- Registers a child. A name that was closed is used anew, as another generation.
-- keys: partition
-- args: clock herd agent token instance child child_token role label exist_ok runner
-- answers: registered <generation> | exists <generation>
-- moves: none
-- include: seat timer text mail turns

seat.prove_parent()
text.check('label', args.label, herd.label_limit)
local known = read(key.agent(args.child))
if known.token == args.child_token then return { 'registered', known.generation } end
if known.state == 'open' then
  if args.exist_ok == '1' then
    if args.runner ~= '' then turns.employ(args.child, args.runner) end
    return { 'exists', known.generation }
  end
  refuse('agent_exists', "agent '", args.child, "' is registered; close it first, take another ",
    'name, or say that it may exist (exist_ok=True, --exist-ok)')
end
if known.state == 'closing' then
  refuse('wrong_state', "agent '", args.child, "' is still closing; try again when it is closed")
end
local generation = (tonumber(known.generation or herd.generations) or 0) + 1
seat.active()
redis.call('DEL', key.agent(args.child))
redis.call('HSET', key.agent(args.child), 'state', 'open', 'generation', generation,
  'token', args.child_token, 'former', known.token or '', 'role', args.role, 'label', args.label,
  'registered_at', now, 'born', herd.seq or 0)
redis.call('ZADD', key.agents(), now, args.child)
timer.clear('9:forget:a:' .. args.child)
if args.runner ~= '' then turns.employ(args.child, args.runner) end
journal('registered', { agent = args.child, generation = generation })
return { 'registered', generation }
