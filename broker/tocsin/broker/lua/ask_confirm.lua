-- A waiting call has its answer: it will not come as mail, and mail of it that nobody read goes back.
-- Several calls may wait for one answer; the reply's record lists those that have it.
-- keys: partition
-- args: clock herd agent token instance request call
-- answers: confirmed | elsewhere <instance>
-- moves: none
-- memory: allow-oom
-- include: seat timer mail asks

seat.prove()
local ask = asks.own(args.request)
local call = args.instance .. ':' .. args.call
local waited = redis.call('ZREM', key.attending(args.request), call) == 1
local m = ask.reply and read(key.message(ask.reply)) or {}
if not m.confirmed and (m.state == 'taken' or m.state == 'handled') then
  return { 'elsewhere', m.by }
end
if m.confirmed and waited then
  redis.call('HSET', key.message(ask.reply), 'confirmed', m.confirmed .. ' ' .. call)
elseif m.kind and not m.confirmed then
  mail.unlist(ask.reply, m)
  redis.call('HSET', key.message(ask.reply), 'state', 'handled', 'handled_at', now, 'by',
    args.instance, 'entry', '', 'confirmed', call)
  redis.call('HDEL', key.message(ask.reply), 'body', 'data')   -- the request's record has them too
  mail.retire(ask.reply)
  journal('handled', { agent = args.agent, messages = { ask.reply } })
end
redis.call('HDEL', key.message(args.request), 'untold')
redis.call('ZREM', key.answers(args.agent), args.request)
timer.clear('7:attend:' .. args.request)
return { 'confirmed' }
