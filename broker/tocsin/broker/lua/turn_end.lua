-- How a turn ended, by who ran it, and what comes of it. A turn that was lost meanwhile has ended already.
-- keys: partition
-- args: clock herd agent token instance turn kind why tail session till
-- answers: ended <what was decided> <when the next is due, where it is put off> | over
-- moves: broke released
-- memory: allow-oom
-- include: seat timer lease mail dead tasks requests asks attendance outbox room turns endings reminders

seat.load()
local a = pick(key.agent(args.agent), { 'turn', 'turn_token', 'turn_report' })
local whose, decided, till = string.match(a.turn_report or '', '^(%S+) (%S+) (%S*)$')
if whose == args.token then return { 'ended', decided, till } end   -- its answer was lost
if a.turn_token ~= args.token or a.turn ~= args.turn then return { 'over' } end
if args.session ~= '' then redis.call('HSET', key.agent(args.agent), 'session', args.session) end
local decision, next_at = endings.close(args.agent, { kind = args.kind, why = args.why, tail = args.tail, till = args.till })
if decision ~= 'closed' then lease.gone(args.agent, args.instance, false) end
room.made()
next_at = next_at and string.format('%.0f', next_at) or ''
redis.call('HSET', key.agent(args.agent), 'turn_report', args.token .. ' ' .. decision .. ' ' .. next_at)
return { 'ended', decision, next_at }
