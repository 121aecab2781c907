-- A turn was put into its queue. One that is not to be launched any more gives its slot back.
-- keys: partition
-- args: clock herd child turn lane
-- answers: launched | over
-- moves: none
-- memory: allow-oom
-- include: timer turns

load_herd()
local a = pick(key.agent(args.child), { 'turn', 'turn_state' })
if a.turn == args.turn and a.turn_state == 'due' then
  turns.launched(args.child, args.lane)
  journal('turn_launched', { agent = args.child, turn = args.turn, lane = args.lane })
  return { 'launched' }
end
local slot = args.lane .. '/' .. args.herd .. '/' .. args.child .. '/' .. args.turn
if a.turn ~= args.turn or (a.turn_state or 'none') == 'none' then   -- what it left behind was noted before it got this one
  redis.call('ZADD', key.freed(), wall, slot)
end
return { 'over' }
