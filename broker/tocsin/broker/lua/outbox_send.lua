-- An agent writes to the parent of another herd. The message is accepted into this herd's outbox; the
-- other herd says, when it is forwarded, whether it takes it.
-- keys: partition
-- args: clock herd agent token instance message other body data thread delivery digest
-- answers: sent | duplicate
-- moves: none
-- include: seat mail timer text loops outbox turns

seat.prove()
if mail.repeated(args.message, args.digest) then return { 'duplicate' } end
text.check_envelope(args.body, args.data)
outbox.check(args.other)
local to = args.other .. '/parent'
local looping, in_turn = loops.pair(args.message, to, me.trail)
if looping then return looping end

seat.active()
outbox.send({ id = args.message, kind = 'message', sender = args.agent,
  sender_generation = me.generation, to = to, delivery = args.delivery, wakes = true,
  thread = args.thread, body = args.body, data = args.data, digest = args.digest,
  in_turn = in_turn, trail = me.trail }, args.other)
return { 'sent' }
