-- Takes what is to be forwarded between herds now, for one scheduler, which has `patience` ms to see
-- to it before another may take it: of some pairs of herds, the oldest `batch` things each.
-- keys: partition
-- args: clock herd limit batch patience
-- answers: outboxes <real ms until the next, or empty> <herd, other, who opened the herd, news, mail> ...
-- moves: none
-- memory: allow-oom
-- include: timer outbox ties

local answer = { 'outboxes', '' }
for _, each in ipairs(redis.call('ZRANGEBYSCORE', key.forwards(), '-inf', now, 'LIMIT', 0, args.limit)) do
  local from, other = outbox.split(each)
  args.herd = from or ''
  local ok, news, posts = pcall(outbox.next, other, args.batch)
  if not from then
    redis.call('ZREM', key.forwards(), each)
  elseif not ok then   -- its outbox was written over: it is set aside for a while, and stops nothing
    redis.call('ZADD', key.forwards(), now + 600000, each)
  elseif #news + #posts > 0 then
    redis.call('ZADD', key.forwards(), timer.on_wall(wall + args.patience), each)
    answer[#answer + 1] = { from, other, redis.call('HGET', key.herd(), 'opened_by') or '', news, posts }
  else
    outbox.plan(other, now)
  end
end
local next = redis.call('ZRANGE', key.forwards(), 0, 0, 'WITHSCORES')
if next[2] then
  answer[2] = string.format('%.0f', math.max(0, math.ceil((tonumber(next[2]) - now) / factor)))
end
return answer
