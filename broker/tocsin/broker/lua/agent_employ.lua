-- Gives a child a runner, another one, or none; its turns are run by it from the next on.
-- keys: partition
-- args: clock herd agent token instance call child runner
-- answers: employed
-- moves: none
-- include: seat timer turns mail

seat.prove_parent()
if args.child == 'parent' then refuse('forbidden', 'a parent has no runner: its process opens the herd') end
seat.open_agent(args.child)
if seat.repeated(args.call) then return { 'employed' } end
seat.note(args.call)
seat.active()
turns.employ(args.child, args.runner)
journal('employed', { agent = args.child, runner = args.runner ~= '' and 1 or 0 })
return { 'employed' }
