-- Whether a turn may go on: why it has to stop, or that it is not this caller's any more.
-- keys: partition
-- args: clock herd agent token instance turn
-- answers: running | stop <why> | over
-- moves: none
-- memory: allow-oom

local a = pick(key.agent(args.agent), { 'state', 'turn', 'turn_token', 'turn_stop' })
if a.turn ~= args.turn or a.turn_token ~= args.token then return { 'over' } end
if a.turn_stop then return { 'stop', a.turn_stop } end
return { 'running' }
