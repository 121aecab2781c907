-- Who is calling: a herd that is there, an agent that is there, a token that proves it.

function seat.load()
  load_herd()
  if not herd.state then
    refuse('unknown_herd', "there is no herd '", args.herd, "' in fleet '", fleet,
      "'; open it, or look at the names with `tocsin herd list`")
  end
end

function seat.agent(name)
  local record = pick(key.agent(name), { 'state', 'generation', 'token', 'former', 'born', 'awaited', 'read_to',
    'trail', 'turn_state' })
  if not record.state then
    refuse('unknown_agent', "herd '", args.herd, "' has no agent '", name,
      "'; register it, or look at the names with `tocsin agent list`")
  end
  unemployed[name] = not record.turn_state
  return record
end

-- An agent that mail can still reach.
function seat.open_agent(name)
  local record = seat.agent(name)
  if record.state ~= 'open' then
    refuse('agent_closed', "agent '", name, "' was closed; register it again to use the name anew")
  end
  return record
end

-- Whether the token is that of a turn, while it runs (see `turns`).
local function of_turn()
  local turn = redis.call('HMGET', key.agent(args.agent), 'turn_token', 'turn')
  if turn[1] ~= args.token then return false end
  me.turn = turn[2]
  return true
end

-- `closed_too`: allowed in a closed herd, for as long as its records are kept.
function seat.prove(closed_too)
  seat.load()
  me = seat.agent(args.agent)
  if me.token ~= args.token and not of_turn() then
    if me.former == args.token then
      refuse('agent_closed', "this token belongs to an earlier generation of agent '", args.agent,
        "'; join with the token of the present one")
    end
    refuse('unauthorized', "the token does not belong to agent '", args.agent, "' of herd '",
      args.herd, "'; use the token that its registration returned")
  end
  if closed_too then return end
  if herd.state ~= 'open' then
    refuse('herd_closed', "herd '", args.herd, "' is ", herd.state, ' and takes no new work')
  end
  if me.state ~= 'open' then
    refuse('agent_closed', "agent '", args.agent, "' is ", me.state, ' and can do nothing more')
  end
end

function seat.prove_parent(closed_too)
  if args.agent ~= 'parent' then
    seat.load()
    refuse('forbidden', "only the parent of herd '", args.herd, "' may do this, not '",
      args.agent, "'; ask it with a message")
  end
  seat.prove(closed_too)
end

-- Whether an envelope was put to the caller, and not to who had its name before.
function seat.meant(m)
  return m.to == args.agent and tonumber(m.seq or 0) > tonumber(me.born or 0)
end

-- Whether it was put to the caller before it was rerouted.
function seat.was_meant(m)
  return string.find(' ' .. (m.was or '') .. ' ', ' ' .. args.agent .. ' ', 1, true) ~= nil
end

-- Whether the caller sent an envelope, and not who had its name before.
function seat.sent(m)
  return m.sender == args.agent and (m.sender_generation or '0') == me.generation
end

-- Whether the caller may look at an envelope: its sender, who is or was its recipient, the parent.
function seat.may_read(m)
  return args.agent == 'parent' or seat.meant(m) or seat.was_meant(m) or seat.sent(m)
end

local calls   -- as `repeated` found them

-- What this very call came to when it was carried out before, its answer lost; nil if it was not. For
-- calls that make nothing which an id could name: the agent's record keeps the last of them.
function seat.repeated(call)
  calls = redis.call('HGET', key.agent(args.agent), 'calls') or ''
  return string.match(calls, call .. ':?(%S*)')
end

-- Notes it, and in a word what it comes to, if its answer says more than that it was done.
function seat.note(call, what)
  local noted = ' ' .. call .. (what and ':' .. what or '')
  redis.call('HSET', key.agent(args.agent), 'calls', string.sub(calls .. noted, -1500))
end

-- Signs of work, as opposed to signs of a running process.
function seat.active()
  redis.call('HSET', key.agent(args.agent), 'active_at', now)
end
