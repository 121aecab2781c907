-- Mail is handled: what this instance took (fenced by the delivery it took), or the agent was shown.
-- keys: partition
-- args: clock herd agent token instance messages
-- answers: acked <handled> <message ids of those that are another's now> ...
-- moves: none
-- memory: allow-oom
-- include: seat timer mail reading room outbox

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

room.made()
mail.handled(args.agent, args.instance, held, handled)
answer[2] = answer[2] + #handled
return answer
