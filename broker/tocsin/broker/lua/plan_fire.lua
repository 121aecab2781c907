-- Sees to slots of a plan, each once: whoever knows another `upto` comes too late. Each of `slots`
-- gives its task, `missed` more were passed over; `reached` is up to when that is, `next` the next slot.
-- keys: partition
-- args: clock herd plan upto slots missed reached next
-- answers: fired <task> ... | past | paused | later
-- moves: none
-- include: timer lease mail text room delegation plans turns

load_herd()
local plan = read(key.plan(args.plan))
if herd.state ~= 'open' or plan.state ~= 'active' or plan.upto ~= args.upto then return { 'past' } end

-- Stops it, and tells the parent once.
local function pause(why)
  plans.stop(args.plan, 'paused', why)
  mail.notice('msg_plan_' .. bare(args.plan) .. '_' .. args.upto, 'parent', false, nil, nil,
    { about = 'plan_paused', plan = args.plan, agent = plan.agent, reason = why })
  return { 'paused' }
end
local why = plans.gone(plan)
if why then return pause(why) end

local answer, skipped, reached = { 'fired' }, tonumber(args.missed), nil
for _, slot in ipairs(cjson.decode(args.slots)) do
  local task = 'task_' .. bare(args.plan) .. '_' .. slot
  local ok, refusal = pcall(plans.delegate, plan, args.plan, task)
  local code = not ok and type(refusal) == 'table' and refusal.refused and refusal.refused[2]
  if not ok and not code then error(refusal) end
  if code == 'queue_full' then   -- it comes when there is room
    local again = timer.on_wall(wall + 60000)
    redis.call('HSET', key.plan(args.plan), 'next', again, 'problem', refusal.refused[3])
    if reached then redis.call('HSET', key.plan(args.plan), 'upto', reached) end
    plans.place(args.plan, again)
    return { 'later' }
  elseif code == 'agent_busy' then
    skipped = skipped + 1
    redis.call('HSET', key.plan(args.plan), 'problem', refusal.refused[3])
    journal('plan_skipped', { plan = args.plan, slot = slot, reason = refusal.refused[3] })
  elseif code then
    return pause(refusal.refused[3])
  else
    answer[#answer + 1] = task
    journal('plan_fired', { plan = args.plan, slot = slot, task = task })
  end
  reached = slot
end
if tonumber(args.missed) > 0 then
  journal('plan_skipped', { plan = args.plan, count = args.missed, reason = 'missed' })
end
redis.call('HSET', key.plan(args.plan), 'upto', args.reached, 'next', args.next)
redis.call('HINCRBY', key.plan(args.plan), 'skipped', skipped)
if reached then redis.call('HSET', key.plan(args.plan), 'last_slot', reached) end
if args.next == '' then
  plans.stop(args.plan, 'ended', 'it has no more slots')
else
  plans.place(args.plan, args.next)
end
return answer
