-- Takes alerts that are due for one notifier, which has `patience` ms to tell them before another may
-- take them; until `keep` ms from now alerts are wanted. What each says is true at this moment: a
-- reminder whose wait is over is dropped. What cannot be read is dropped and counted.
-- keys: partition
-- args: clock herd limit patience keep
-- answers: alerts <real ms until the next, or empty> <dropped since last told> <id, tries, JSON> ...
-- moves: none
-- memory: allow-oom
-- include: lease reminders

redis.call('HSET', partition, 'alerting', wall + tonumber(args.keep))
local dropped = redis.call('HGET', partition, 'alerts_dropped')
if dropped then redis.call('HDEL', partition, 'alerts_dropped') end
local answer = { 'alerts', '', dropped or 0 }

-- What an alert says at this moment; nil if it is not true any more.
local function content(id)
  local says = cjson.decode(redis.call('HGET', key.alerted(), id) or '{}')
  args.herd = says.herd
  if says.event == 'reminder' then
    load_herd()
    local wait = reminders.data(says.task, says.episode)
    if not wait then return nil end
    says.agent, says.request, says.question = wait.agent, wait.request, wait.question
    says.recipient, says.waiting_ms = wait.recipient.agent, wait.elapsed_ms
  end
  if says.task then says.description = redis.call('HGET', key.task(says.task), 'description') or nil end
  if says.message then says.body = redis.call('HGET', key.message(says.message), 'body') or nil end
  return says.event and says or nil
end

while #answer - 3 < tonumber(args.limit) do
  local id = redis.call('ZRANGEBYSCORE', key.alerts(), '-inf', wall, 'LIMIT', 0, 1)[1]
  if not id then break end
  local ok, says = pcall(content, id)
  if not ok then   -- a record that it is about was damaged: it says what was noted of it, if that can be read
    local noted, what = pcall(cjson.decode, redis.call('HGET', key.alerted(), id))
    says = noted and type(what) == 'table' and what.event and what.herd and what.at and what or nil
    if not says then answer[3] = answer[3] + 1 end
  end
  if says then
    redis.call('ZADD', key.alerts(), wall + tonumber(args.patience), id)
    answer[#answer + 1] = { id, redis.call('HINCRBY', key.alerted(), id .. ':tries', 1), cjson.encode(says) }
  else
    redis.call('ZREM', key.alerts(), id)
    redis.call('HDEL', key.alerted(), id, id .. ':tries')
  end
end
local next = redis.call('ZRANGE', key.alerts(), 0, 0, 'WITHSCORES')
if next[2] then answer[2] = string.format('%.0f', math.max(0, tonumber(next[2]) - wall)) end
return answer
