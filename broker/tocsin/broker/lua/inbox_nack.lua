-- Mail is given back, to be taken again by anyone who serves the agent. Only an error counts as
-- an attempt.
-- keys: partition
-- args: clock herd agent token instance messages delay error
-- answers: returned <how many> <message ids of those that are another's now> ...
-- moves: broke released
-- memory: allow-oom
-- include: seat timer lease mail dead tasks requests reminders reading text attendance outbox turns

seat.prove()
-- What a turn says by itself when its handler fails (1,000 characters) is taken in any herd.
text.check('error', args.error, math.max(tonumber(herd.body_limit), 1000))
local wanted, answer = cjson.decode(args.messages), { 'returned', 0 }
for _, item in ipairs(wanted) do reading.held(item[1], item[2]) end   -- refuses before it writes
for _, item in ipairs(wanted) do
  -- Read again, because one that is given up may end what the next asks for.
  local id, m = item[1], reading.held(item[1], item[2])
  if m == 'fenced' then
    local before = redis.call('HGET', key.message(id), 'returned') == item[2]   -- its answer lost
    if before then answer[2] = answer[2] + 1 else answer[#answer + 1] = id end
  elseif type(m) == 'table' then
    if args.error ~= '' then
      dead.failed(id, m, args.error, tonumber(args.delay))
    else
      mail.hand_back(id, m, tonumber(args.delay))
    end
    redis.call('HSET', key.message(id), 'returned', item[2])
    answer[2] = answer[2] + 1
  end
end
return answer
