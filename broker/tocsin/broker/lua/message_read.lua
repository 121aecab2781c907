-- The receipt of a message, to its sender, its recipient or the parent.
-- keys: partition
-- args: clock herd agent token instance message
-- answers: receipt <record>
-- moves: none
-- memory: allow-oom
-- include: seat

seat.prove(true)
local m = read(key.message(args.message))
if not m.kind then
  refuse('unknown_message', 'there is no message ', args.message, " in herd '", args.herd,
    "'; its record may have ended")
end
local was = string.find(' ' .. (m.was or '') .. ' ', ' ' .. args.agent .. ' ', 1, true)
if args.agent ~= 'parent' and not was and not seat.meant(m) and not seat.sent(m) then
  refuse('forbidden', 'message ', args.message, ' is between ', m.sender, ' and ', m.to)
end
return { 'receipt', redis.call('HGETALL', key.message(args.message)) }
