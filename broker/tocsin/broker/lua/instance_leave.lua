-- Ends an instance: cleanly, or as lost when `died` is 1. What it held is handed back, and counts
-- as a failed attempt only if it died. Repeat until left.
-- keys: partition
-- args: clock herd agent token instance died
-- answers: leaving | left
-- moves: broke released
-- memory: allow-oom
-- include: seat timer lease mail dead tasks requests reminders asks attendance outbox turns endings

seat.prove(true)
if me.state ~= 'open' or not redis.call('ZSCORE', key.instances(args.agent), args.instance) then
  return { 'left' }
end
return { lease.gone(args.agent, args.instance, args.died == '1') and 'left' or 'leaving' }
