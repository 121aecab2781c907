-- Changes settings of an open herd; waits that are open already follow at once.
-- keys: partition
-- args: clock herd agent token instance call given source
-- answers: set <herd record>
-- moves: none
-- include: seat timer lease mail tasks reminders turns

seat.prove_parent()
if seat.repeated(args.call) then return { 'set', redis.call('HGETALL', key.herd()) } end
seat.note(args.call)
local sources = cjson.decode(herd.sources)
local given = cjson.decode(args.given)
for field, value in pairs(given) do
  redis.call('HSET', key.herd(), field, value)
  sources[field] = args.source
end
if given.journal_retention then timer.set('9:forget:journal', now) end
redis.call('HSET', key.herd(), 'sources', cjson.encode(sources))
journal('settings', { given = args.given })
seat.load()
reminders.arm()
turns.admit()
for _, agent in ipairs(redis.call('ZRANGE', key.agents(), 0, -1)) do tasks.fill_slots(agent) end
return { 'set', redis.call('HGETALL', key.herd()) }
