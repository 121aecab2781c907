-- Mail is handled: what this instance took (fenced by the delivery it took), or the agent was shown.
-- keys: partition
-- args: clock herd agent token instance messages
-- answers: acked <handled> <message ids of those that are another's now> ...
-- moves: none
-- memory: allow-oom
-- include: seat timer mail reading room outbox

-- Takes the entries of envelopes that the agent holds out of its streams, all at once.
local function unlist(held)
  local entries, ids = { steer = {}, follow_up = {} }, {}
  for id, m in pairs(held) do
    ids[#ids + 1] = id
    table.insert(entries[m.delivery], m.entry)
  end
  for delivery, list in pairs(entries) do
    if #list > 0 then
      redis.pcall('XACK', mail.stream(args.agent, delivery), 'agent', unpack(list))
      redis.call('XDEL', mail.stream(args.agent, delivery), unpack(list))
    end
  end
  if #ids > 0 then redis.call('ZREM', key.waking(args.agent), unpack(ids)) end
end

seat.prove()
local held, handled, answer = {}, {}, { 'acked', 0 }
for _, item in ipairs(cjson.decode(args.messages)) do
  local id, m = item[1], reading.held(item[1], item[2])
  if m == 'fenced' then
    answer[#answer + 1] = id
  elseif m == 'handled' then
    answer[2] = answer[2] + 1   -- by this call before, its answer lost; or, as it was shown, by another
  elseif type(m) == 'table' then
    held[id] = m
    handled[#handled + 1] = id
  end
end

unlist(held)
room.made()
for _, id in ipairs(handled) do
  redis.call('HSET', key.message(id), 'state', 'handled', 'handled_at', now, 'by', args.instance,
    'entry', '')
  outbox.news(id, held[id], 'handled')
  if held[id].kind ~= 'request' then
    redis.call('HDEL', key.message(id), 'body', 'data')
    mail.retire(id)
  elseif held[id].request ~= 'open' then
    mail.retire(id, tonumber(herd.task_retention))
  end
end
if #handled > 0 then journal('handled', { agent = args.agent, messages = handled }) end
answer[2] = answer[2] + #handled
return answer
