-- What somebody or something hangs on: the task, message or agent of this id (an instance stands for
-- its agent, the herd for its parent), what each of them waits for in turn, and the timers of all, as far as the caller may look. At most so many; what
-- chain they make, `why.py` says.
-- keys: partition
-- args: clock herd agent token instance kind id limit
-- answers: why <now> <1 if there was more> <kind, id, record, ...> ...
-- moves: none
-- memory: allow-oom
-- include: seat timer lease mail dead tasks requests causes outbox

seat.prove(true)
local answer, todo, seen = { 'why', string.format('%.0f', now), 0 }, {}, {}

local function look(kind, id)
  if id and id ~= '' and not seen[kind .. id] then
    seen[kind .. id] = true
    todo[#todo + 1] = { kind, id }
  end
end

-- The agent that an instance serves.
local function served()
  for _, agent in ipairs(redis.call('ZRANGE', key.agents(), 0, -1)) do
    if redis.call('ZSCORE', key.instances(agent), args.id) then return agent end
  end
  refuse('unknown_agent', 'no agent of herd ', args.herd, ' has instance ', args.id, ' any more; what it ',
    'held went back when it ended, and the journal says when: `tocsin herd journal`')
end

-- What was named is there and may be looked at, or it is refused.
local kind, id = args.kind, args.id
if kind == 'instance' then
  kind, id = 'agent', served()
elseif kind == 'agent' and id == args.herd and redis.call('EXISTS', key.agent(id)) == 0 then
  id = 'parent'
end
if kind == 'task' then
  tasks.own(id)
elseif kind == 'agent' then
  seat.agent(id)
elseif args.agent ~= 'parent' or
  not string.match(args.id, '^msg_reminder_') and redis.call('HGET', key.message(args.id), 'state') ~= 'dead' then
  mail.readable(args.id)
end
look(kind, id)
local rows = { task = causes.task, message = causes.message, agent = causes.agent }
local at, limit = 1, tonumber(args.limit)
while todo[at] and at <= limit do
  local row = rows[todo[at][1]](todo[at][2], look)
  if row then answer[#answer + 1] = row end
  at = at + 1
end
if todo[at] then answer[3] = 1 end
if not answer[4] then mail.need(args.id) end   -- a reminder that never was
return answer
