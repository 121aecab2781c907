-- The plans of a partition: when each is to be looked at next, and the records of some that are to be
-- now, the longest due first. An entry without a plan that goes on behind it goes.
-- keys: partition
-- args: clock herd listed limit
-- answers: due <now> <real ms until the next, or empty> <herd/plan, when, ...> <herd, plan, record> ...
-- moves: none
-- memory: allow-oom

local answer = { 'due', now, '', {} }
local due = redis.call('ZRANGEBYSCORE', key.planned(), '-inf', now, 'LIMIT', 0, args.limit)
for _, member in ipairs(due) do
  local name, id = string.match(member, '^([^/]+)/(.+)$')
  args.herd = name or ''
  local ok, plan = pcall(read, key.plan(id or ''))
  if not ok then   -- it was written over: it is set aside for a while, and stops nothing
    redis.call('ZADD', key.planned(), now + 600000, member)
  elseif plan.state == 'active' and redis.call('HGET', key.herd(), 'state') == 'open' then
    answer[#answer + 1] = { name, id, redis.call('HGETALL', key.plan(id)) }
  else
    redis.call('ZREM', key.planned(), member)
  end
end
answer[4] = redis.call('ZRANGE', key.planned(), 0, args.listed - 1, 'WITHSCORES')
local next = redis.call('ZRANGEBYSCORE', key.planned(), '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
if next[2] then answer[3] = string.format('%.0f', math.ceil((tonumber(next[2]) - now) / factor)) end
return answer
