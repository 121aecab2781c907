-- The herd's plans, oldest first, or one that is named, also if it has ended; and what time it is.
-- keys: partition
-- args: clock herd agent token instance plan
-- answers: plans <now> <plan> ...
-- moves: none
-- memory: allow-oom
-- include: seat plans

seat.prove_parent(true)
local answer = { 'plans', now }
if args.plan ~= '' then
  plans.need(args.plan)
  answer[3] = plans.row(args.plan)
  return answer
end
for _, id in ipairs(redis.call('ZRANGE', key.plans(), 0, -1)) do
  answer[#answer + 1] = plans.row(id)
end
return answer
