-- The newest lines of the herd's history, oldest first, from after a given one on.
-- keys: partition
-- args: clock herd agent token instance after limit
-- answers: journal <entry id, line> ...
-- moves: none
-- memory: allow-oom
-- include: seat

seat.prove_parent(true)
local lines
if args.after == '' then
  local newest = redis.call('XREVRANGE', key.journal(), '+', '-', 'COUNT', args.limit)
  lines = {}
  for i = #newest, 1, -1 do lines[#lines + 1] = newest[i] end
else
  lines = redis.call('XRANGE', key.journal(), '(' .. args.after, '+', 'COUNT', args.limit)
end
local answer = { 'journal' }
for _, line in ipairs(lines) do answer[#answer + 1] = { line[1], line[2][2] } end
return answer
