-- The receipt of a message, to its sender, its recipient or the parent.
-- keys: partition
-- args: clock herd agent token instance message
-- answers: receipt <record>
-- moves: none
-- memory: allow-oom
-- include: seat mail

seat.prove(true)
mail.readable(args.message)
return { 'receipt', redis.call('HGETALL', key.message(args.message)) }
