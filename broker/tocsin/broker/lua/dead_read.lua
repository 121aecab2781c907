-- One dead letter, with what it says.
-- keys: partition
-- args: clock herd agent token instance message
-- answers: dead <record> <why it cannot be replayed>
-- moves: none
-- memory: allow-oom
-- include: seat dead tasks requests

seat.prove_parent(true)
local m = read(key.message(args.message))
dead.need(args.message, m)
if m.kind == 'task' then m.body = redis.call('HGET', key.task(m.task or ''), 'description') end
local flat = {}
for field, value in pairs(m) do
  flat[#flat + 1] = field
  flat[#flat + 1] = value
end
return { 'dead', flat, dead.obstacle(args.message, m) or '' }
