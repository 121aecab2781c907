-- Asks: requests whose asker stays on the line. In the request's record: `ask` 1, `window` (ms of
-- silence it bears), `ceiling_at`, `extensions`, `round` (from 2 on, when it is opened again),
-- `rerouted_at`, and of a probe on the asker's side `probing`, `totals`, `probe_active_at`. A request
-- that ends `no_reply` or `ceiling_active` stays answerable.

-- The record of an ask of the caller's own, or a refusal that says what it is instead.
function asks.own(id)
  local m = mail.need(id)
  if m.ask ~= '1' then
    refuse('wrong_state', 'message ', id, ' is not an ask; the answer to a question comes as mail')
  end
  if m.sender ~= args.agent or m.sender_generation ~= me.generation then
    refuse('forbidden', 'ask ', id, " was made by agent '", m.sender, "', not by you")
  end
  return m
end

-- When the target, or what the asker's probe watches, was last at work since the ask began.
local function active(m)
  local target = tonumber(redis.call('HGET', key.agent(m.to), 'active_at')) or 0
  return math.max(tonumber(m.opened_at), target, tonumber(m.probe_active_at) or 0)
end

local SOURCES = 200   -- remembered of one record; instances come and go

-- Notes the totals of a probe: growth of a source since its last total is a sign of work, a new
-- or a shrunken source is where counting starts again. Two instances may count the same thing from
-- different places, so each has sources of its own: `<instance>/<source>`. Returns the totals as
-- JSON, and whether any grew. They are text there, because cjson writes no more than 14 digits.
function asks.growth(known, totals)
  local last, grew, reported, count = known and cjson.decode(known) or {}, false, {}, 0
  for source, total in pairs(cjson.decode(totals)) do
    local name = args.instance .. '/' .. source
    if last[name] and total > tonumber(last[name]) then grew = true end
    last[name] = string.format('%.0f', total)
    reported[name] = last[name]
  end
  for _ in pairs(last) do count = count + 1 end
  return cjson.encode(count > SOURCES and reported or last), grew
end

-- The same for an open ask and its asker's probe.
function asks.note(id, m)
  local totals, grew = asks.growth(m.totals, args.totals)
  redis.call('HSET', key.message(id), 'totals', totals)
  if grew then redis.call('HSET', key.message(id), 'probe_active_at', now) end
end

function asks.arm(id, window, ceiling)
  timer.set('4:window:' .. id, window)
  timer.set('3:ceiling:' .. id, ceiling)
end

-- Why nothing came: the first of these that is true.
local function silence(m)
  local turn = redis.call('HGET', key.agent(m.to), 'turn_state')
  if turn == 'due' or turn == 'launched' then return 'queued' end
  if not turn and not lease.live(m.to) then return 'away' end
  if m.state == 'accepted' or m.state == 'delayed' then return 'unread' end
  local waits = redis.call('ZRANGE', key.asking(m.to), 0, 0)[1]
  if waits then return 'waiting_on ' .. (redis.call('HGET', key.message(waits), 'to') or '?') end
  return 'read_but_silent'
end

local function give_up(id, m, how, limit)
  m.silence, m.limit = how == 'no_reply' and silence(m) or '', limit
  redis.call('HSET', key.message(id), 'silence', m.silence, 'limit', limit)
  requests.close(id, m, how, limit)
end

-- When silence ends an ask, if nothing moves it on: never after its ceiling. Who it was rerouted to
-- has a whole window. An asker that probes knows more than others; they leave it a grace to say so.
function asks.due(id, m, probes)
  local ends = math.max(active(m), tonumber(m.rerouted_at) or 0) + tonumber(m.window)
  if m.probing == '1' and not probes and attendance.lasts(id, m.sender) then
    ends = ends + tonumber(herd.grace) * factor
  end
  return math.min(ends, tonumber(m.ceiling_at))
end

-- Counts what work has extended, and times the window by what is true now: its end moves with work,
-- with who waits and on whom, and its timer does not. None where the ceiling comes first.
local function retime(id, m)
  local began, from = active(m), tonumber(m.extended_from or m.opened_at)
  if began > from and now >= from + tonumber(m.window) then
    redis.call('HINCRBY', key.message(id), 'extensions', 1)
    redis.call('HSET', key.message(id), 'extended_from', began)
  end
  local ends = asks.due(id, m, true)
  if ends == tonumber(m.ceiling_at) then
    timer.set('3:ceiling:' .. id, ends)
    timer.clear('4:window:' .. id)
  else
    timer.set('4:window:' .. id, ends > now and ends or asks.due(id, m))
  end
end

-- Before the scheduler fires it, or when something else than work has changed; whom it leaves the
-- window to looks at once.
function asks.refresh(id)
  local m = pick(key.message(id), { 'request', 'ask', 'sender', 'to', 'opened_at', 'rerouted_at',
    'extended_from', 'window', 'ceiling_at', 'probing', 'probe_active_at' })
  if m.request ~= 'open' or m.ask ~= '1' then return end
  retime(id, m)
  if asks.due(id, m, true) <= now and asks.due(id, m) > now then mail.ring(m.sender, 'ask:' .. id) end
end

-- The window: silence for as long as it allows ends the ask. Where it would end at the ceiling or
-- later, the ceiling ends it, however late either is looked at. `probes`: the caller did.
function asks.window(id, probes)
  local m = read(key.message(id))
  if m.request ~= 'open' or m.ask ~= '1' then return 0 end
  retime(id, m)
  if asks.due(id, m, probes) > now or asks.due(id, m, true) == tonumber(m.ceiling_at) then return 0 end
  give_up(id, m, 'no_reply', 'window')
  return 1
end

-- The ceiling never moves: what tells its two endings apart is whether the target was at work
-- within the last window before it. Where it is looked at late, work since counts too: the first
-- script to commit decides, and the target is at work.
function asks.ceiling(id)
  local m = read(key.message(id))
  if m.request ~= 'open' or m.ask ~= '1' then return 0 end
  local last = active(m)
  local busy = last > tonumber(m.opened_at) and last + tonumber(m.window) >= tonumber(m.ceiling_at)
  give_up(id, m, busy and 'ceiling_active' or 'no_reply', 'ceiling')
  return 1
end

-- Fires what is overdue, whatever became of its timers.
function asks.overdue(id, m, probes)
  if now >= (m.extended_from or m.opened_at) + tonumber(m.window) then asks.window(id, probes) end
  if now >= tonumber(m.ceiling_at) then asks.ceiling(id) end
end

-- In so many real ms, rounded up.
local function real(ms) return string.format('%.0f', math.max(0, math.ceil(ms / factor))) end

-- What an ask has come to, for whoever waits; while it is open, the time until it may end, how long
-- its window is, and the time until its ceiling.
function asks.answer(id, m, probes)
  if m.reply then
    return { 'answered', m.reply, m.answered_by, m.answer, m.answer_data, m.answer_late,
      m.opened_at, m.answered_at, m.extensions }
  end
  if m.request == 'open' then
    return { 'pending', real(asks.due(id, m, probes) - now), real(tonumber(m.window)), real(m.ceiling_at - now) }
  end
  local task = m.task ~= '' and redis.call('HGET', key.task(m.task), 'state') or ''
  return { 'ended', m.request, m.silence or '', m.limit or '', m.to, task, m.task, m.window, m.opened_at,
    m.ceiling_at }
end
