-- What the caller's library cannot read is a dead letter at once: no other try would read it.
-- keys: partition
-- args: clock herd agent token instance messages
-- answers: buried <how many>
-- moves: broke released
-- memory: allow-oom
-- include: seat timer lease mail dead tasks requests reminders reading attendance outbox turns

seat.prove()
local wanted, answer = cjson.decode(args.messages), { 'buried', 0 }
for _, item in ipairs(wanted) do reading.held(item[1], item[2]) end   -- refuses before it writes
for _, item in ipairs(wanted) do
  local id, m = item[1], reading.held(item[1], item[2])
  if type(m) == 'table' then
    redis.call('HSET', key.message(id), 'error', item[3])
    dead.bury(id, m, 'it cannot be read: ' .. item[3])
    answer[2] = answer[2] + 1
  end
end
return answer
