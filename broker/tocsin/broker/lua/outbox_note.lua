-- Notes what became of what was forwarded, and when the pair of herds is next to be seen to: after
-- `pause` ms, or at once if there is more. What the herd over this one judged is heeded.
-- keys: partition
-- args: clock herd other outcomes pause
-- answers: noted
-- moves: cancelled released
-- memory: allow-oom
-- include: timer mail outbox ties sweep dead tasks requests reminders attendance lease plans turns

load_herd()

-- Whether a tie that was carried is done with.
local function tie(what, outcome, reason)
  if outcome == 'gone' then ties.over(args.other, what) end
  if outcome ~= 'judged' then return outcome ~= 'more' and outcome ~= 'later' end
  local verdict = cjson.decode(reason)
  return verdict[3] ~= herd.opened_by or sweep.heed(verdict)   -- not of this herd's name before
end

for _, each in ipairs(herd.state and cjson.decode(args.outcomes) or {}) do
  local member, outcome, reason = unpack(each)
  local id, what = string.match(member, '^[^/]+/%d+/([^/]+)/?(.*)$')
  local m = what == '' and outbox.sent(id) or {}
  if id == '@tie' then
    if tie(what, outcome, reason) then redis.call('ZREM', key.outbox(), member) end
  elseif outcome ~= 'later' then
    redis.call('ZREM', key.outbox(), member)
    if m.state == 'outgoing' then
      if outcome == 'forwarded' then outbox.forwarded(id, m) else outbox.refused(id, m, reason) end
    end
  elseif m.state == 'outgoing' then
    redis.call('HSET', key.message(id), 'error', reason)
    redis.call('HINCRBY', key.message(id), 'tries', 1)
  end
end
outbox.plan(args.other, timer.on_wall(wall + args.pause))
return { 'noted' }
