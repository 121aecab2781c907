-- One agent writes to another; with `expects`, it is a request, and its task waits.
-- keys: partition
-- args: clock herd agent token instance message to body data task thread expects within delivery waits digest
-- answers: sent | duplicate
-- moves: asked
-- include: seat timer lease mail tasks requests reminders text loops room turns

seat.prove()
if mail.repeated(args.message, args.digest) then return { 'duplicate' } end
if args.expects == '1' then
  requests.check(args.to, args.task, args.body, args.data, args.waits == '1')
else
  seat.open_agent(args.to)
  text.check_envelope(args.body, args.data)
  if args.task ~= '' then tasks.own(args.task) end
  room.check(args.to, args.waits == '1')
end
local looping = loops.pair(args.message, args.to, me.trail)
if looping then return looping end

local request = args.expects == '1'
local m = { id = args.message, kind = request and 'request' or 'message', sender = args.agent,
  sender_generation = me.generation, to = args.to, delivery = args.delivery, wakes = true,
  task = args.task ~= '' and args.task or nil, thread = args.thread, body = args.body,
  data = args.data, digest = args.digest, trail = me.trail }
seat.active()
if request then
  -- 0: as long as its task; a request without one then lasts as long as a task would.
  local within = tonumber(args.within) or tonumber(herd.reply_timeout)
  if within == 0 and not m.task then within = tonumber(herd.task_deadline) end
  requests.open(m, within)
else
  mail.send(m)
end
return { 'sent' }
