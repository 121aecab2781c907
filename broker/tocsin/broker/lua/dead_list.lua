-- The herd's dead letters, newest first; `before` goes on behind one that was listed.
-- keys: partition
-- args: clock herd agent token instance before limit
-- answers: dead <how many more> <message, its record, why it cannot be replayed> ...
-- moves: none
-- memory: allow-oom
-- include: seat dead tasks requests

seat.prove_parent(true)
local from = 0
if args.before ~= '' then
  local rank = redis.call('ZREVRANK', key.dead(), args.before)
  if not rank then
    refuse('unknown_message', 'before: ', args.before, ' is no dead letter any more; list from the beginning')
  end
  from = rank + 1
end
local ids = redis.call('ZREVRANGE', key.dead(), from, from + tonumber(args.limit) - 1)
local answer = { 'dead', redis.call('ZCARD', key.dead()) - from - #ids }
for _, id in ipairs(ids) do
  local ok, m = pcall(read, key.message(id))
  m = ok and m or {}
  local flat = {}
  for _, field in ipairs({ 'kind', 'sender', 'to', 'task', 'reason', 'error', 'attempts', 'accepted_at',
    'taken_at', 'ended_at', 'request' }) do
    flat[#flat + 1] = field
    flat[#flat + 1] = m[field] or ''
  end
  answer[#answer + 1] = { id, flat, dead.obstacle(id, m) or '' }
end
return answer
