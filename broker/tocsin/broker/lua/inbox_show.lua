-- Shows unread mail without taking it: as often as wished, and nothing nearer to dead letters but
-- what cannot be read. `only`: of these messages alone, if any are named.
-- keys: partition
-- args: clock herd agent token instance limit only
-- answers: mail <how many more> <record> ...
-- moves: taken broke released
-- memory: allow-oom
-- include: seat timer lease mail dead tasks requests reminders reading attendance outbox loops turns hosts

seat.prove()
lease.touch()
local limit, batch, shown, more = tonumber(args.limit), {}, {}, 0
local named, only = cjson.decode(args.only), {}
for _, id in ipairs(named) do only[id] = true end
for _, delivery in ipairs({ 'steer', 'follow_up' }) do
  local stream = mail.stream(args.agent, delivery)
  for _, entry in ipairs(redis.call('XRANGE', stream, '-', '+')) do
    local id = dead.named(entry[2])
    local held = id and redis.pcall('HMGET', key.message(id), 'state', 'by') or {}
    local left = held[1] == 'taken' and held[2] ~= args.instance or #named > 0 and not only[id]
    if not left and #batch >= limit then
      more = more + 1
    elseif not left then
      local m = reading.prepare(delivery, entry[1], entry[2], held[1] == 'taken' and 'taken' or 'shown')
      if m then
        batch[#batch + 1] = m
        if held[1] ~= 'shown' and held[1] ~= 'taken' then shown[#shown + 1] = m.id end
      end
    end
  end
end
reading.sort(batch)
loops.note(batch)
reading.count(batch)
local answer = { 'mail', more }
for _, m in ipairs(batch) do answer[#answer + 1] = reading.mark(m) end
if #shown > 0 then
  journal('shown', { agent = args.agent, instance = args.instance, messages = shown })
end
return answer
