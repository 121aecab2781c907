-- Asks an agent and stays on the line. The same id or key joins an ask that is open, opens one
-- again that got no reply, and otherwise tells what came of it.
-- keys: partition
-- args: clock herd agent token instance message to body data task thread window ceiling probing totals call digest
-- answers: pending <real ms> | answered <reply> ... | ended <how, why> ...
-- moves: asked
-- include: seat timer lease mail tasks requests reminders text asks

seat.prove()
lease.touch()   -- whoever waits is there, also where nothing else renews its lease
local known = read(key.message(args.message))
if known.kind then
  mail.repeated(args.message, args.digest)
  known = asks.own(args.message)
  if known.request ~= 'no_reply' or known.reply then
    asks.attend(args.message, args.call)
    return asks.answer(args.message, known)
  end
end
local to = known.to or args.to   -- whom it waits on by now
local ceiling = tonumber(args.ceiling) or tonumber(herd.ask_ceiling)
local window = math.min(tonumber(args.window) or tonumber(herd.ask_window), ceiling)
requests.check(to, args.task, args.body, args.data)
local circle = asks.circle(args.agent, to)
if circle then
  refuse('loop_limit', 'these agents would wait for one another for ever: ',
    table.concat(circle, ' -> '), '; ask as a plain request, which does not hold the line')
end

seat.active()
local m = { id = args.message, kind = 'request', sender = args.agent,
  sender_generation = me.generation, to = to, wakes = true,
  task = args.task ~= '' and args.task or nil, thread = args.thread, body = args.body,
  data = args.data, digest = args.digest }
if not known.kind then
  requests.open(m, 0)
else   -- once more; who acked it is handed it again
  mail.withdraw(requests.notice(m.id, known), 'it was asked again')
  redis.call('HSET', key.message(m.id), 'request', 'open', 'opened_at', now, 'round', (known.round or 1) + 1)
  redis.call('HDEL', key.message(m.id), 'silence', 'limit', 'untold', 'probe_active_at', 'extended_from')
  timer.clear('9:forget:m:' .. m.id)
  requests.expect(m)
  if known.state == 'handled' or known.state == 'withdrawn' or known.state == 'dead' then
    redis.call('ZREM', key.dead(), m.id)
    redis.call('HSET', key.message(m.id), 'attempts', 0)
    mail.add(m.id, to, known.delivery, true)
  end
end
redis.call('HSET', key.message(m.id), 'ask', 1, 'window', window, 'ceiling_at', now + ceiling,
  'extensions', 0, 'probing', args.probing, 'totals', args.totals)
asks.attend(m.id, args.call)
asks.arm(m.id, now + window, now + ceiling)
return asks.answer(m.id, read(key.message(m.id)))
