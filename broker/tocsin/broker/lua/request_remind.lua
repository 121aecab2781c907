-- The parent reminds whoever a question waits on, with a message that wakes it.
-- keys: partition
-- args: clock herd agent token instance request message
-- answers: sent | duplicate
-- moves: none
-- include: seat mail requests text loops timer turns

seat.prove_parent()
if mail.repeated(args.message, args.request) then return { 'duplicate' } end
local m = requests.need_open(args.request)
seat.open_agent(m.to)
local looping = loops.pair(args.message, m.to, me.trail)
if looping then return looping end
seat.active()
mail.send({ id = args.message, kind = 'message', sender = 'parent',
  sender_generation = me.generation, to = m.to, wakes = true,
  task = m.task ~= '' and m.task or nil, reply_to = args.request, hops = loops.hops(m), trail = me.trail, digest = args.request,
  data = cjson.encode({ about = 'reminded', request = args.request, asker = m.sender,
    question = m.body, opened_at = tonumber(m.opened_at), waiting_ms = now - tonumber(m.opened_at) }) })
journal('recipient_reminded', { message = args.request, recipient = m.to })
return { 'sent' }
