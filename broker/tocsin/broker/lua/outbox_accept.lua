-- Takes in mail that another herd forwards, in its order, up to the first that is not taken. Each is
-- judged once: for each herd it is kept how far its mail was judged, and as what the last of it.
-- keys: partition
-- args: clock herd origin opened mail
-- answers: arrived <forwarded, refused or later, and why> ...
-- moves: none
-- include: timer mail text room loops outbox arrivals turns

load_herd()

-- The last that was judged of this herd's, since it was opened by whom. One that has not sent anything
-- for a year is forgotten, a few with each that is new.
local opened, last, how, why = string.match(redis.call('HGET', key.arrivals(), args.origin) or '',
  '^(%S*) (%d+) (%a+) %d+ (.*)$')
if opened ~= args.opened then
  last = nil
  local old = redis.call('HRANDFIELD', key.arrivals(), 2, 'WITHVALUES') or {}
  for i = 1, #old, 2 do
    local at = tonumber(string.match(old[i + 1], '^%S* %d+ %a+ (%d+) '))
    if at < now - 31622400000 then redis.call('HDEL', key.arrivals(), old[i]) end
  end
end
last = tonumber(last) or 0
local answer = { 'arrived' }
for _, m in ipairs(cjson.decode(args.mail)) do
  local seq, outcome, reason = tonumber(m.seq), 'forwarded', ''
  if seq == last then
    outcome, reason = how, why
  elseif seq > last then
    outcome, reason = arrivals.judge(m)
    if outcome ~= 'later' then
      last, how, why = seq, outcome, reason
      if herd.state then   -- at once: should the next break, this one is not judged again
        redis.call('HSET', key.arrivals(), args.origin,
          string.format('%s %.0f %s %.0f %s', args.opened, last, how, now, why))
      end
    end
  end
  answer[#answer + 1] = { outcome, reason }
  if outcome ~= 'forwarded' then break end
end
return answer
