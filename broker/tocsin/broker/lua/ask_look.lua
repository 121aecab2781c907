-- Waits on: keeps the ask attended, notes what the asker's probe saw, fires what is overdue, and
-- tells what has come of it. Any instance of the asker may.
-- keys: partition
-- args: clock herd agent token instance request call totals
-- answers: pending <real ms> | answered <reply> ... | ended <how, why> ...
-- moves: released
-- memory: allow-oom
-- include: seat timer lease mail tasks requests reminders asks attendance turns

seat.prove()
local m, probes = asks.own(args.request), args.totals ~= ''
attendance.check(args.request, m)
lease.touch()   -- whoever waits is there, also where nothing else renews its lease
if m.request == 'open' then
  attendance.begin(args.request)
  if probes then asks.note(args.request, m) end
  asks.overdue(args.request, m, probes)
  m = read(key.message(args.request))
end
return asks.answer(args.request, m, probes)
