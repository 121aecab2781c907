-- A try to wake the agent for mail of its own, made so many ms ago, by a path that the broker does not
-- serve itself. Mail that is quiet or gone is passed over.
-- keys: partition
-- args: clock herd agent token instance call path ok messages detail ago
-- answers: ok
-- moves: none
-- include: seat hosts

seat.prove()
if seat.repeated(args.call) then return { 'ok' } end
local path, meant = args.path, {}
for _, id in ipairs(cjson.decode(args.messages)) do
  local m = pick(key.message(id), { 'kind', 'to', 'was', 'seq', 'wakes', 'shown_at', 'taken_at', 'wake:' .. path })
  if m.kind and m.to ~= args.agent and not seat.was_meant(m) then
    refuse('forbidden', 'message ', id, " was sent to agent '", m.to, "', not to you")
  end
  m.id = id
  if m.wakes == '1' and seat.meant(m) then meant[#meant + 1] = m end
end
if #meant > 0 then
  hosts.tried(path, args.ok == '1', now - args.ago * factor, meant, args.detail)
end
seat.note(args.call)
return { 'ok' }
