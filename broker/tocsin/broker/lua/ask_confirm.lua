-- A waiting call has its answer: it will not come as mail, and mail of it that nobody read goes back.
-- Several calls may wait for one answer; the ask's record lists those that have it.
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
if ask.reply and not ask.confirmed and (not m.kind or m.state == 'taken' or m.state == 'handled') then
  return { 'elsewhere', m.by or '' }   -- its record may have gone since it was handled as mail
end
if ask.confirmed and waited then
  redis.call('HSET', key.message(args.request), 'confirmed', ask.confirmed .. ' ' .. call)
elseif ask.reply and not ask.confirmed then
  mail.unlist(ask.reply, m)
  redis.call('ZREM', key.dead(), ask.reply)
  redis.call('HSET', key.message(args.request), 'confirmed', call)
  redis.call('HSET', key.message(ask.reply), 'state', 'handled', 'handled_at', now, 'by',
    args.instance, 'entry', '')
  redis.call('HDEL', key.message(ask.reply), 'body', 'data')   -- the request's record has them too
  mail.retire(ask.reply)
  journal('handled', { agent = args.agent, messages = { ask.reply } })
end
redis.call('HDEL', key.message(args.request), 'untold')
redis.call('ZREM', key.answers(args.agent), args.request)
timer.clear('7:attend:' .. args.request)
return { 'confirmed' }
