-- Waits on: keeps the ask attended, notes what the asker's probe saw, fires what is overdue, and
-- tells what has come of it. Any instance of the asker may.
-- keys: partition
-- args: clock herd agent token instance request call totals
-- answers: pending <real ms> | answered <reply> ... | ended <how, why> ...
-- moves: released
-- memory: allow-oom
-- include: seat timer lease mail tasks requests reminders asks

seat.prove()
lease.touch()   -- whoever waits is there, also where nothing else renews its lease
local m = asks.own(args.request)
if m.request == 'open' then
  asks.attend(args.request, args.call)
  if args.totals ~= '' then
    local totals, grew = asks.growth(m.totals, args.totals)
    redis.call('HSET', key.message(args.request), 'totals', totals)
    if grew then redis.call('HSET', key.message(args.request), 'probe_active_at', now) end
  end
  asks.overdue(args.request, tonumber(m.ceiling_at))
  m = read(key.message(args.request))
end
return asks.answer(args.request, m)
