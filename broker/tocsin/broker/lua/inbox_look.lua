-- What is unread and in nobody's hands, in order; touches nothing, and says nothing of who looks.
-- keys: partition
-- args: clock herd agent token instance limit
-- answers: unread <id, kind, sender, delivery, wakes, accepted at, shown at or empty> ...
-- moves: none
-- memory: allow-oom
-- include: seat mail dead reminders

seat.prove()
local FIELDS = { 'state', 'entry', 'kind', 'sender', 'delivery', 'wakes', 'accepted_at', 'shown_at', 'seq' }

-- The envelope of an entry; nil if there is nothing to hand over by it.
local function envelope(delivery, entry, fields)
  local id = dead.named(fields)
  local m = id and pick(key.message(id), FIELDS)
  if not m then return end
  if fields[1] == 'r' and not m.state then
    local task = pick(key.task(fields[2]), { 'state', 'episode' })
    if task.state ~= 'waiting' or task.episode ~= fields[4] then return end
    m = { state = 'accepted', entry = entry, kind = 'reminder', sender = '@tocsin', delivery = delivery,
      wakes = '0', accepted_at = redis.call('GET', key.reminded(fields[2], fields[4])) or now, seq = fields[6] }
  end
  if m.entry ~= entry or m.state ~= 'accepted' and m.state ~= 'shown' then return end
  m.id = id
  return m
end

local limit, answer = tonumber(args.limit), { 'unread' }
local page = math.max(limit, 100) -- what others have in hand is passed over, in few steps
for _, delivery in ipairs({ 'steer', 'follow_up' }) do
  local batch, from, entries = {}, '-', nil
  repeat
    entries = redis.call('XRANGE', mail.stream(args.agent, delivery), from, '+', 'COUNT', page)
    for _, entry in ipairs(entries) do
      from = '(' .. entry[1]
      local ok, m = pcall(envelope, delivery, entry[1], entry[2])
      if ok and m and m.kind then batch[#batch + 1] = m end
    end
  until #entries < page or #batch >= limit
  table.sort(batch, function(a, b) return (tonumber(a.seq) or 0) < (tonumber(b.seq) or 0) end)
  for _, m in ipairs(batch) do
    if #answer > limit then break end
    answer[#answer + 1] = { m.id, m.kind, m.sender, m.delivery, m.wakes, m.accepted_at, m.shown_at or '' }
  end
end
return answer
