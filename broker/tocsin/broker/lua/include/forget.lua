-- The end of records: `m:<message>`, `t:<task>`, `p:<plan>`, `a:<agent>` one at a time, `herd` and `journal` in
-- passes.

local function forget_message(id) redis.call('DEL', key.message(id), key.attending(id)) end

local function forget_record(what)
  local kind, id = string.match(what, '^(%a):(.+)$')
  if kind == 'm' then
    local state = redis.call('HGET', key.message(id), 'state')
    if state == 'handled' or state == 'withdrawn' or state == 'dead' or state == 'forwarded' or
      state == 'refused' or herd.state == 'closed' then
      forget_message(id)
      redis.call('ZREM', key.dead(), id)
    end
  elseif kind == 't' then
    redis.call('DEL', key.task(id))
    redis.call('ZREM', key.tasks(), id)
  elseif kind == 'p' then
    redis.call('DEL', key.plan(id))
    redis.call('ZREM', key.plans(), id)
    redis.call('ZREM', key.planned(), args.herd .. '/' .. id)
  elseif kind == 'a' and redis.call('HGET', key.agent(id), 'state') == 'closed' then
    -- The name may be used again, but never its generation: others still hold mail of this one.
    local generation = tonumber(redis.call('HGET', key.agent(id), 'generation'))
    herd.generations = math.max(tonumber(herd.generations) or 0, generation)
    redis.call('HSET', key.herd(), 'generations', herd.generations)
    redis.call('DEL', key.agent(id))
    redis.call('ZREM', key.agents(), id)
  end
end

-- One pass over what a closed herd left: its records in due order, then the herd itself. What it still
-- has to forward gets an hour, whatever the retention.
local function forget_herd(limit)
  local until_then = herd.closed_at + herd.herd_retention + 3600000
  if now < until_then and redis.call('ZCARD', key.outbox()) > 0 then
    return timer.set('9:forget:herd', until_then)
  end
  local due = redis.call('ZPOPMIN', key.due(), limit)
  for i = 1, #due, 2 do
    local what = string.match(due[i], '^9:forget:(.+)$')
    if what and what ~= 'herd' then forget_record(what) end
  end
  local dead = redis.call('ZPOPMIN', key.dead(), limit)
  for i = 1, #dead, 2 do forget_message(dead[i]) end
  local left = redis.call('ZRANGE', key.tasks(), 0, limit - 1)
  for _, task in ipairs(left) do forget_record('t:' .. task) end
  local planned = redis.call('ZRANGE', key.plans(), 0, limit - 1)
  for _, plan in ipairs(planned) do forget_record('p:' .. plan) end
  if #due + #dead + #left + #planned + outbox.drop(limit) > 0 then
    timer.set('9:forget:herd', now)
    return
  end
  local agents = redis.call('ZRANGE', key.agents(), 0, limit - 1)
  for _, agent in ipairs(agents) do redis.call('DEL', key.agent(agent)) end
  if #agents == limit then
    redis.call('ZREM', key.agents(), unpack(agents))
    timer.set('9:forget:herd', now)
    return
  end
  redis.call('DEL', key.agents(), key.herd(), key.journal(), key.waiting(), key.episodes(),
    key.due(), key.tasks(), key.arrivals(), key.turning(), key.held())
  redis.call('ZREM', key.herds(), args.herd)
end

-- One pass over the oldest lines of the journal. The next comes when the oldest that stays is old
-- enough, though not for every line by itself. Ids tell their age by the server's clock only.
local function forget_lines(limit)
  local kept, old, oldest = tonumber(herd.journal_retention), {}, now
  for _, line in ipairs(redis.call('XRANGE', key.journal(), '-', '+', 'COUNT', limit)) do
    local at = cjson.decode(line[2][2]).at
    if at > now - kept then
      oldest = at
      break
    end
    old[#old + 1] = line[1]
  end
  if #old > 0 then redis.call('XDEL', key.journal(), unpack(old)) end
  local next = math.ceil(math.max(oldest + kept, now + kept / 20))
  timer.set('9:forget:journal', #old < limit and next or now)
end

function forget.pass(what)
  if what == 'herd' then
    forget_herd(100)
  elseif what == 'journal' then
    forget_lines(200)
  else
    forget_record(what)
  end
  return 1
end
