-- Gives an agent another token; the one before stops at once. By the parent, or the agent itself.
-- keys: partition
-- args: clock herd agent token instance target new_token
-- answers: rotated <generation>
-- moves: none
-- include: seat

seat.load()
local target = seat.open_agent(args.target)
if target.token == args.new_token then return { 'rotated', target.generation } end
seat.prove()
if args.agent ~= 'parent' and args.agent ~= args.target then
  refuse('forbidden', "agent '", args.agent, "' may rotate its own token only")
end
redis.call('HSET', key.agent(args.target), 'token', args.new_token)
journal('rotated', { agent = args.target })
return { 'rotated', target.generation }
