-- A waiting call ends without an answer; `told` 1: it knows how the ask ended. The request stays
-- answerable. What was held for this call alone becomes mail, also an answer that it confirmed but,
-- cut off in that moment, never had.
-- keys: partition
-- args: clock herd agent token instance request call told
-- answers: left
-- moves: none
-- memory: allow-oom
-- include: seat timer mail tasks requests asks attendance turns

seat.prove(true)
local m = asks.own(args.request)
local call = args.instance .. ':' .. args.call
redis.call('ZREM', key.attending(args.request), call)
if me.state ~= 'open' then return { 'left' } end
if args.told == '1' then
  redis.call('HDEL', key.message(args.request), 'untold')
  mail.withdraw(requests.notice(args.request, m), 'its asker knows')
end
local has, others = m.confirmed or '', {}
for one in string.gmatch(has, '%S+') do
  if one ~= call then others[#others + 1] = one end
end
if #others > 0 then
  redis.call('HSET', key.message(args.request), 'confirmed', table.concat(others, ' '))
elseif has ~= '' and redis.call('EXISTS', key.message(m.reply)) == 1 then
  redis.call('HDEL', key.message(args.request), 'confirmed')
  redis.call('HSET', key.message(m.reply), 'state', 'held', 'by', '', 'body', m.answer, 'data', m.answer_data)
  redis.call('HDEL', key.message(m.reply), 'handled_at')
  timer.clear('9:forget:m:' .. m.reply)
end
attendance.look(args.request)
if m.probing == '1' then asks.refresh(args.request) end
return { 'left' }
