-- Compares records of a herd with what is derived from them (`h` the herd itself, `a` agents, `t`
-- tasks, `p` plans, `r` markers, `m` messages), and entries of indexes with the records they name; mends what
-- differs, if `mend` is 1. Of a long index some entries at a time, from a cursor on.
-- keys: partition
-- args: clock herd mend records indexes
-- answers: compared <index, owner, cursor of what goes on> <what was wrong, id, why it is broken> ...
-- moves: asked broke cancelled released
-- include: timer lease mail dead tasks requests reminders asks attendance mend mend_herd mend_mail mend_indexes outbox ties plans turns

load_herd()
if not herd.state then   -- it has ended meanwhile, and its agents with it; or its record was lost
  for _, each in ipairs(cjson.decode(args.records)) do
    if each[1] == 'a' and each[2] == 'parent' and redis.call('EXISTS', key.agent('parent')) == 1 then
      return { 'compared', {}, { 'broken', args.herd, "the herd's own record is gone, so nothing of it can be served" } }
    end
  end
  return { 'compared', {} }
end
local more, broken = {}, {}

-- Runs a check; what cannot be served is told, and holds up nothing beside it.
local function checked(id, check, ...)
  local ok, result = pcall(check, ...)
  if ok then return result end
  broken[#broken + 1] = { 'broken', id, words(result) }
end

checked(args.herd, mend.types)
for _, each in ipairs(cjson.decode(args.indexes)) do
  local kind, owner, cursor = unpack(each)
  local next = checked(kind, mend_indexes.check, kind, owner, cursor)
  if next and next ~= '0' then more[#more + 1] = { kind, owner, next } end
end
local records = { m = mend_mail.check, t = mend_herd.task, a = mend_herd.agent, r = mend_herd.marker,
  h = mend_herd.herd, p = mend_herd.plan }
for _, each in ipairs(cjson.decode(args.records)) do checked(each[2], records[each[1]], each[2], each[3]) end
local answer = { 'compared', more }
for _, list in ipairs({ mend.findings(), broken }) do
  for _, finding in ipairs(list) do answer[#answer + 1] = finding end
end
return answer
