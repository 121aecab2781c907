-- Notes what became of what was forwarded, and when the pair of herds is next to be seen to: after
-- `pause` ms, or at once if there is more.
-- keys: partition
-- args: clock herd other outcomes pause
-- answers: noted
-- moves: none
-- memory: allow-oom
-- include: timer mail outbox

load_herd()
for _, each in ipairs(herd.state and cjson.decode(args.outcomes) or {}) do
  local member, outcome, reason = unpack(each)
  local id, what = string.match(member, '^[^/]+/%d+/([^/]+)/?(.*)$')
  local m = what == '' and outbox.sent(id) or {}
  if outcome ~= 'later' then
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
