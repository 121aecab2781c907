-- Another herd tells what became of mail that it took in from this one.
-- keys: partition
-- args: clock herd origin news
-- answers: heard
-- moves: none
-- memory: allow-oom
-- include: timer mail outbox

load_herd()
for _, each in ipairs(herd.state and cjson.decode(args.news) or {}) do
  local seq, id, what, reason = unpack(each)
  local m = outbox.sent(id)
  if outbox.split(m.to) == args.origin and m.state ~= 'refused' and
    tonumber(seq) > tonumber(m.there_seq or 0) then
    if m.state == 'outgoing' then   -- the answer that it was taken in was lost
      redis.call('ZREM', key.outbox(), outbox.member(args.origin, m.seq, id))
      outbox.forwarded(id, m)
    end
    outbox.heard(id, m, what, seq, reason)
  end
end
return { 'heard' }
