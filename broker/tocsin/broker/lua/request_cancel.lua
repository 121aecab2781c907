-- The parent, or its asker, gives an open question up; its task runs again.
-- keys: partition
-- args: clock herd agent token instance request
-- answers: cancelled | duplicate
-- moves: released
-- memory: allow-oom
-- include: seat timer lease mail tasks requests reminders attendance turns

seat.prove()
local m = read(key.message(args.request))
if m.kind == 'request' and args.agent ~= 'parent' and args.agent ~= m.sender then
  refuse('forbidden', 'request ', args.request, " was made by agent '", m.sender, "'; only it or the parent may cancel it")
end
if m.request == 'cancelled' then return { 'duplicate' } end
requests.need_open(args.request)
seat.active()
requests.close(args.request, m, 'cancelled',
  args.agent ~= m.sender and 'the parent cancelled the question' or nil)
return { 'cancelled' }
