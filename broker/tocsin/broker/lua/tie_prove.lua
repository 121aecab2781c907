-- An agent, or its parent, proves that a herd may be opened under that agent, which counts it from here on:
-- which herd and generation that is, and how many levels of herds may be under the new one.
-- keys: partition
-- args: clock herd agent token instance leader task under
-- answers: proven <who opened the herd, generation, levels>
-- moves: none
-- include: seat tasks outbox ties

if redis.call('HGET', key.agent('parent'), 'token') == args.token then args.agent = 'parent' end
seat.prove()
if args.agent ~= args.leader and args.agent ~= 'parent' then
  refuse('forbidden', "only agent '", args.leader, "' or the parent may open a herd under it, not '",
    args.agent, "'")
end
local leader = seat.open_agent(args.leader)
if args.task ~= '' then
  local task = tasks.need(args.task)
  if task.agent ~= args.leader or not tasks.is_open(task) then
    refuse('wrong_state', 'task ', args.task, " is no open task of agent '", args.leader,
      "'; name one that is, or none for a herd that serves whatever that agent does")
  end
end
local levels = math.min(tonumber(herd.levels or 1000), tonumber(herd.max_levels_under))
if levels < 1 then
  refuse('forbidden', "no more herds may be under those of '", args.herd,
    "': the limit of levels is reached (max_levels_under of the herds above, the lowest counts); ",
    'let a herd further up take the work')
end
local led = redis.call('HLEN', key.leads(args.leader))
if led >= tonumber(herd.max_herds_under) and redis.call('HEXISTS', key.leads(args.leader), args.under) == 0 then
  leave = function() ties.look_for(args.leader) end
  refuse('agent_busy', "agent '", args.leader, "' leads ", led, ' herds already, and the limit is ',
    herd.max_herds_under, ' (max_herds_under); close one that has done its work')
end
ties.open(args.leader, args.under, args.task)
return { 'proven', herd.opened_by, leader.generation, levels - 1 }
