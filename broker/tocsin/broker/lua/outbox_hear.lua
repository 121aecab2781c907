-- Another herd tells what became of mail that it took in from this one; one under this herd, what it
-- takes itself for; the one over it, how it stands, which is heeded in one bounded sweep.
-- keys: partition
-- args: clock herd origin news
-- answers: heard <forwarded, judged, heeded, more or gone, and the verdict> ...
-- moves: cancelled released
-- memory: allow-oom
-- include: timer mail outbox ties sweep dead tasks requests reminders attendance lease plans turns

load_herd()

local function receipt(seq, id, what, reason)
  local m = herd.state and outbox.sent(id) or {}
  if outbox.split(m.to) == args.origin and m.state ~= 'refused' and
    tonumber(seq) > tonumber(m.there_seq or 0) then
    if m.state == 'outgoing' then   -- the answer that it was taken in was lost
      redis.call('ZREM', key.outbox(), outbox.member(args.origin, m.seq, id))
      outbox.forwarded(id, m)
    end
    outbox.heard(id, m, what, seq, reason)
  end
end

-- Whether the herd over this one means this one, and not an earlier one of its name.
local function meant(told)
  return herd.state and herd.state ~= 'closed' and herd.under == args.origin .. '/' .. told.agent and
    herd.under_generation == told.generation and herd.under_opened == told.opened
end

local answer = { 'heard' }
for _, each in ipairs(cjson.decode(args.news)) do
  local seq, id, what, reason = unpack(each)
  if id ~= '@tie' then
    receipt(seq, id, what, reason)
    answer[#answer + 1] = { 'forwarded', '' }
  elseif what == 'claim' then
    answer[#answer + 1] = { 'judged', cjson.encode(ties.judge(args.origin, cjson.decode(reason))) }
  else
    local told = cjson.decode(reason)
    local how = meant(told) and (sweep.heed(told.verdict) and 'heeded' or 'more') or 'gone'
    answer[#answer + 1] = { how, '' }
  end
end
return answer
