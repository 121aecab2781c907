-- Asks an agent and stays on the line. The same id or key joins an ask that is open, opens one
-- again that got no reply or was dead-lettered, and otherwise tells what came of it.
-- keys: partition
-- args: clock herd agent token instance message to body data task thread window ceiling totals call digest
-- answers: pending <real ms> | answered <reply> ... | ended <how, why> ...
-- moves: asked
-- include: seat timer lease mail tasks requests reminders text asks attendance room turns

seat.prove()
local probes = args.totals ~= ''   -- and what it has counted so far
local known = read(key.message(args.message))
if known.kind then
  mail.repeated(args.message, args.digest)
  known = asks.own(args.message)
  if known.reply or known.request ~= 'no_reply' and known.request ~= 'dead' then
    attendance.check(args.message, known)
    lease.touch()
    attendance.begin(args.message)
    if probes and known.request == 'open' then asks.note(args.message, known) end
    return asks.answer(args.message, known, probes)
  end
end
local to = known.to or args.to   -- whom it waits on by now
local ceiling = tonumber(args.ceiling) or tonumber(herd.ask_ceiling)
local window = math.min(tonumber(args.window) or tonumber(herd.ask_window), ceiling)
requests.check(to, args.task, args.body, args.data)
attendance.refuse_circle(args.agent, to)

lease.touch()   -- whoever waits is there, also where nothing else renews its lease
seat.active()
local m = { id = args.message, kind = 'request', sender = args.agent,
  sender_generation = me.generation, to = to, wakes = true,
  task = args.task ~= '' and args.task or nil, thread = args.thread, body = args.body,
  data = args.data, digest = args.digest, trail = me.trail }
if not known.kind then
  requests.open(m, 0)
else   -- once more; who acked it is handed it again
  mail.withdraw(requests.notice(m.id, known), 'it was asked again')
  redis.call('HSET', key.message(m.id), 'request', 'open', 'opened_at', now, 'round', (known.round or 1) + 1)
  redis.call('HDEL', key.message(m.id), 'silence', 'limit', 'untold', 'totals', 'probe_active_at',
    'extended_from', 'rerouted_at')
  redis.call('ZREM', key.answers(args.agent), m.id)
  timer.clear('7:attend:' .. m.id)
  timer.clear('9:forget:m:' .. m.id)
  requests.expect(m)
  if known.state == 'handled' or known.state == 'withdrawn' or known.state == 'dead' then
    redis.call('ZREM', key.dead(), m.id)
    redis.call('HSET', key.message(m.id), 'attempts', 0)
    mail.add(m.id, to, known.delivery, true)
  end
end
redis.call('HSET', key.message(m.id), 'ask', 1, 'window', window, 'ceiling_at', now + ceiling,
  'extensions', 0, 'probing', probes and 1 or 0)
if probes then redis.call('HSET', key.message(m.id), 'totals', (asks.growth(nil, args.totals))) end
attendance.begin(m.id)
asks.arm(m.id, now + window, now + ceiling)
return asks.answer(m.id, read(key.message(m.id)), probes)
