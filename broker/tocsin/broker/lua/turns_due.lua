-- The turns of a partition that are to be launched now, the first `limit` of each lane, and the slots that
-- were given back since `turns_freed` last took note of some.
-- keys: partition
-- args: clock herd limit
-- answers: turns <slots given back> <herd, agent, turn, lane, reason, place, ms it may last, task> ...
-- moves: none
-- memory: allow-oom
-- include: turns

local answer = { 'turns', redis.call('ZRANGE', key.freed(), 0, 999) }
for _, lane in ipairs(redis.call('ZRANGE', key.lanes(), 0, -1)) do
  for _, each in ipairs(turns.next(lane, args.limit)) do answer[#answer + 1] = each end
end
return answer
