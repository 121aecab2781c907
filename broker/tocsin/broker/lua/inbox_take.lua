-- Takes unread mail for one instance. In mode `turn`, nothing unless something wakes; then that,
-- with the quiet mail around it. What wakes and keeps failing is taken alone, so that it takes
-- nothing beside it to the dead letters. A repeat of the same `turn`, its answer lost, gets the same
-- mail.
-- keys: partition
-- args: clock herd agent token instance mode limit turn
-- answers: mail <1 if more that wakes is unread> <record> ... | empty
-- moves: taken broke released
-- memory: allow-oom
-- include: seat timer lease mail dead tasks requests reminders reading asks attendance room outbox loops turns endings hosts

seat.prove()
lease.touch()
lease.look(args.agent)
-- Ids of turns begin with their time: a repeat is never later than the last that took something.
local turns = 'turns:' .. args.instance
local known = redis.call('HMGET', key.agent(args.agent), turns, 'waits:' .. args.instance)
local latest = known[1] or ''
if latest ~= '' and string.sub(args.turn, 1, -17) <= string.sub(latest, 1, -17) then
  local again = reading.again(args.turn)
  if #again > 0 then return reading.answer(again, args.turn) end
end

local turn = args.mode == 'turn'
if turn and not known[2] then redis.call('HSET', key.agent(args.agent), 'waits:' .. args.instance, 1) end
if turn and redis.call('ZCARD', key.waking(args.agent)) == 0 then return { 'empty' } end

local function unread(stream, count)
  if redis.call('XLEN', stream) == 0 then return {} end
  local got = redis.pcall('XREADGROUP', 'GROUP', 'agent', args.instance, 'COUNT', count,
    'STREAMS', stream, '>')
  if got and got.err then   -- nothing was ever taken from it
    redis.call('XGROUP', 'CREATE', stream, 'agent', '0')
    got = redis.call('XREADGROUP', 'GROUP', 'agent', args.instance, 'COUNT', count,
      'STREAMS', stream, '>')
  end
  return got and got[1] and got[1][2] or {}
end

local failing = redis.call('HGET', key.agent(args.agent), 'failing')
local batch, woken, alone = {}, not turn, false
for _, delivery in ipairs({ 'steer', 'follow_up' }) do
  local stream, left = mail.stream(args.agent, delivery), tonumber(args.limit) - #batch
  if alone or left <= 0 and woken then break end
  left = math.max(left, 1)
  repeat
    local count = failing and reading.sound(stream, left) or left
    alone = count == 0 and #batch == 0
    if count == 0 and not alone then   -- it has the next turn
      woken = true
      break
    end
    local entries = unread(stream, math.max(count, 1))
    for _, entry in ipairs(entries) do
      local m = reading.prepare(delivery, entry[1], entry[2], 'taken')
      if m then
        batch[#batch + 1] = m
        woken = woken or m.wakes == '1'
      end
    end
    alone = alone and #batch > 0
  until woken and (alone or count > 0) or #entries < math.min(count, left)
end
if failing then reading.settle_failing() end
-- Everything was read and nothing woke: the entries of what is said to were deleted by somebody.
if not woken then
  for _, id in ipairs(redis.call('ZRANGE', key.waking(args.agent), 0, 99)) do
    local m = read(key.message(id))
    if m.to then dead.bury(id, m, 'its stream entry was deleted') else redis.call('ZREM', key.waking(args.agent), id) end
  end
end
if #batch == 0 then return { 'empty' } end
room.made()
loops.note(batch)
if args.turn > latest then redis.call('HSET', key.agent(args.agent), turns, args.turn) end
local answer, taken = reading.answer(batch, args.turn), {}
for i, m in ipairs(batch) do taken[i] = m.id end
journal('taken', { agent = args.agent, instance = args.instance, messages = taken })
return answer
