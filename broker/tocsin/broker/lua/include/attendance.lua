-- Who is on the line of an ask. Waiting calls are members `<instance>:<call>` of `attending`, each
-- with the time until which its last look counts. The ask is attended while a call is there whose
-- instance is not gone. What it came to (an answer, `held` in the reply's record, or its end,
-- `untold` in the request's) then waits until a call says that it has it. When nobody attends any
-- more, or no call has looked for a grace, it becomes ordinary mail, and whoever still says so takes
-- that mail back.

local LOOK = 30000   -- ms; a waiting call looks every 10 s or more often

function attendance.begin(id)
  redis.call('ZADD', key.attending(id), manual and FOREVER or wall + LOOK, args.instance .. ':' .. args.call)
end

-- Until when its last look counts, by the server's clock; nil if nobody attends it.
function attendance.lasts(id, asker)
  local calls = redis.call('ZREVRANGE', key.attending(id), 0, 99, 'WITHSCORES')
  for i = 1, #calls, 2 do
    if redis.call('ZSCORE', key.instances(asker), string.match(calls[i], '^(.*):')) then
      return tonumber(calls[i + 1])
    end
  end
end

-- Keeps what an ask came to for whoever attends it, until their last look has not counted for a
-- grace; at least a grace from now, in which a machine that slept can look again.
local function hold(id, asker, ends)
  redis.call('ZADD', key.answers(asker), now, id)
  if ends < FOREVER then
    timer.set('7:attend:' .. id, timer.on_wall(math.max(ends, wall) + tonumber(herd.grace)))
  end
end

-- Holds an answer for whoever waits, or sends it as mail when nobody does.
function attendance.answered(id, asker, reply, wakes)
  local ends = attendance.lasts(id, asker)
  mail.ring(asker, 'ask:' .. id)
  if not ends then return mail.add(reply, asker, 'follow_up', wakes) end
  redis.call('HSET', key.message(reply), 'state', 'held', 'seq', redis.call('HINCRBY', key.herd(), 'seq', 1))
  hold(id, asker, ends)
end

-- An end without an answer. Whoever waits learns it from a look; `tell` is for mail, if none comes.
-- False if nobody waits.
function attendance.ended(id, m, tell)
  mail.ring(m.sender, 'ask:' .. id)
  local ends = attendance.lasts(id, m.sender)
  if not ends then return false end
  if tell then
    redis.call('HSET', key.message(id), 'untold', tell)
    hold(id, m.sender, ends)
  end
  return true
end

-- Looks whether what an ask came to is still waited for; if not, it becomes mail.
function attendance.look(id)
  local m = read(key.message(id))
  if not m.sender then return 0 end   -- its record was lost
  local reply = m.reply and pick(key.message(m.reply), { 'state', 'wakes' }) or {}
  local ends = attendance.lasts(id, m.sender)
  if (reply.state == 'held' or m.untold) and ends and ends + tonumber(herd.grace) > wall then
    hold(id, m.sender, ends)
    return 0
  end
  timer.clear('7:attend:' .. id)
  redis.call('ZREM', key.answers(m.sender), id)
  if m.untold then redis.call('HDEL', key.message(id), 'untold') end
  if reply.state == 'held' then
    mail.add(m.reply, m.sender, 'follow_up', reply.wakes == '1')
  elseif m.untold then
    requests.tell(id, m, m.request, m.untold)
  else
    return 0
  end
  return 1
end

-- The circle of attended asks that one more, from `asker` to `target`, would close: its agents in
-- order, or nil. Looks at up to 5,000 asks.
local function circle(asker, target)
  local from, queue, left = { [target] = asker }, { target }, 5000
  while #queue > 0 and left > 0 do
    local agent = table.remove(queue, 1)
    for _, id in ipairs(redis.call('ZRANGE', key.asking(agent), 0, left - 1)) do
      left = left - 1
      local m = redis.call('HMGET', key.message(id), 'ask', 'to')
      if m[1] == '1' and not from[m[2]] and (attendance.lasts(id, agent) or 0) > wall then
        from[m[2]] = agent
        queue[#queue + 1] = m[2]
        if m[2] == asker then
          local path, step = { asker }, asker
          repeat
            step = from[step]
            table.insert(path, 1, step)
          until step == asker
          return path
        end
      end
    end
  end
end

-- Refuses to wait where the wait would never end.
function attendance.refuse_circle(asker, target)
  local path = circle(asker, target)
  if path then
    refuse('loop_limit', 'these agents would wait for one another for ever: ',
      table.concat(path, ' -> '), '; ask as a plain request, which does not hold the line')
  end
end

-- The same of a call that comes to an open ask, if it is not waiting already.
function attendance.check(id, m)
  if m.request == 'open' and not redis.call('ZSCORE', key.attending(id), args.instance .. ':' .. args.call) then
    attendance.refuse_circle(args.agent, m.to)
  end
end
