-- The parent sends an open question to another agent: the same request, episode and deadline. The
-- copy of the first recipient is taken back; its answer still counts if it comes first.
-- keys: partition
-- args: clock herd agent token instance call request target
-- answers: rerouted | duplicate
-- moves: none
-- include: seat timer lease mail requests asks attendance text room turns

seat.prove_parent()
if seat.repeated(args.call) then return { 'duplicate' } end
local m = requests.need_open(args.request)
if m.to == args.target then return { 'duplicate' } end
seat.open_agent(args.target)
if m.sender == args.target then
  refuse('invalid_input', "agent '", args.target, "' asked this question and cannot answer it")
end
room.check(args.target)
if m.ask == '1' and attendance.lasts(args.request, m.sender) then attendance.refuse_circle(m.sender, args.target) end
seat.active()
seat.note(args.call)
mail.unlist(args.request, m)
redis.call('ZREM', key.asked(m.to), args.request)
redis.call('ZADD', key.asked(args.target), m.opened_at, args.request)
redis.call('HSET', key.message(args.request), 'was', m.was and m.was .. ' ' .. m.to or m.to,
  'to', args.target, 'by', '', 'attempts', 0)
redis.call('HDEL', key.message(args.request), 'shown_at', 'shown_by', 'taken_at', 'taken_by')
mail.add(args.request, args.target, m.delivery, m.wakes == '1')
if m.ask == '1' then
  redis.call('HSET', key.message(args.request), 'rerouted_at', now)
  asks.refresh(args.request)
end
requests.unheard(bare(args.request) .. '_' .. args.target, args.request, m.sender, args.target, m.task ~= '' and m.task or nil)
journal('rerouted', { message = args.request, from = m.to, recipient = args.target })
return { 'rerouted' }
