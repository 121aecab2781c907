-- Answers a request, or writes back to the sender of a message. The first answer closes the
-- request; one that comes too late is kept, marked late and delivered, and changes nothing.
-- keys: partition
-- args: clock herd agent token instance request message body data digest answer_digest
-- answers: sent | late | duplicate <the answer that stands> | superseded <the answer that stands>
-- moves: released
-- memory: allow-oom
-- include: seat timer lease mail tasks requests reminders text attendance loops outbox turns

seat.prove()
if mail.repeated(args.message, args.digest) then return { 'duplicate', args.message } end
local m = mail.need(args.request)
if args.agent == m.sender then
  refuse('forbidden', 'message ', args.request, ' is your own; it is for ', m.to, ' to answer')
end
if not seat.meant(m) and not (m.kind == 'request' and requests.may_answer(m)) then
  refuse('forbidden', 'message ', args.request, " was sent to agent '", m.to, "', not to you")
end
if m.kind ~= 'request' and m.kind ~= 'message' and m.kind ~= 'reply' then
  refuse('wrong_state', 'message ', args.request, ' is a ', m.kind, ' and takes no reply; ',
    'write a message, or settle a task with done')
end
text.check_envelope(args.body, args.data)
if m.reply then
  if m.reply_digest == args.answer_digest then return { 'duplicate', m.reply } end
  seat.active()
  if m.second ~= args.message then   -- not a repeat of it
    redis.call('HSET', key.message(args.request), 'second', args.message)
    journal('second_reply', { message = args.request, sender = args.agent, body = args.body })
  end
  return { 'superseded', m.reply }
end
local other = outbox.split(m.sender)
if other then
  outbox.check(other)
elseif m.sender_generation ~= seat.open_agent(m.sender).generation then
  refuse('agent_closed', "the agent '", m.sender, "' that sent ", args.request, ' was closed; ',
    'its name belongs to a newer one now')
end
-- An answer goes on where its question came from; a chat goes on from the message.
local looping, in_turn
local trail = m.trail
if m.kind ~= 'request' then   -- an answer always fits
  looping = loops.chain(args.request, m)
  m.id = args.request
  trail = loops.trail(m)
  if not looping then looping, in_turn = loops.pair(args.message, m.sender, trail) end
  if looping then return looping end
end

seat.active()
local late = m.kind == 'request' and m.request ~= 'open'
local wakes = true
if m.kind == 'request' then
  redis.call('HSET', key.message(args.request), 'reply', args.message, 'reply_digest',
    args.answer_digest, 'answer', args.body, 'answer_data', args.data, 'answer_late',
    late and 1 or 0, 'answered_by', args.agent, 'answered_at', now)
  if late then
    wakes = m.request ~= 'cancelled' and (m.task == '' or tasks.still_open(m.task))
    mail.withdraw(args.request, 'answered')
  else
    requests.close(args.request, m, 'answered')
  end
end
local reply = { id = args.message, kind = 'reply', sender = args.agent,
  sender_generation = me.generation, to = m.sender, wakes = wakes, late = late and 1 or nil,
  task = m.task ~= '' and m.task or nil, thread = m.thread, reply_to = args.request, hops = loops.hops(m),
  body = args.body, data = args.data, digest = args.digest, in_turn = in_turn, trail = trail }
if other then
  outbox.send(reply, other)
elseif m.ask == '1' then
  mail.record(reply)
  attendance.answered(args.request, m.sender, args.message, wakes)
else
  mail.send(reply)
end
return { late and 'late' or 'sent' }
