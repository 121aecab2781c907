-- What stops agents that answer one another for ever, two or more in a ring: the length of a chain of
-- replies, and how often two agents turn to each other. Answers to questions, tasks, settlements and what Tocsin
-- says itself are never stopped. The parent gets one quiet notice of each loop.

-- The refusal, as an answer, because the notice is a write.
local function stop(id, to, limit, count, ...)
  mail.notice('msg_loop_' .. bare(id), 'parent', false, nil, nil, { about = 'loop',
    agent = args.agent, recipient = to, message = id, limit = limit, count = count })
  return { 'refused', 'loop_limit', table.concat({ ... }) }
end

-- How many replies long a chain is with one more, to `m`.
function loops.hops(m) return (tonumber(m.hops) or 0) + 1 end

-- The refusal of a reply that makes a chain too long; nil if it may be sent.
function loops.chain(id, m)
  local hops, limit = loops.hops(m), tonumber(herd.hop_limit)
  if hops <= limit then return nil end
  return stop(id, m.sender, 'hop_limit', limit, 'message ', id, ' ends a chain of ', hops - 1,
    ' replies to replies, and the limit is ', limit, ' (hop_limit); leave it unanswered, or write ',
    'a new message, or ask a question, if there is something new to say')
end

local MARK, MARKS = 8, 32   -- letters of an id that stand for a message; how many are remembered

local function mark(id) return string.sub(id, -MARK) end

-- The trail of what is written because of a message: marks of those that led to it, the newest last.
-- So long a ring of agents is seen, and what two rings have in common is counted for one of them.
function loops.trail(m) return string.sub((m.trail or '') .. mark(m.id), -MARK * MARKS) end

-- Notes how far the caller has read, and the trail of it: what it writes from here on comes of this.
-- Notices and reminders change nothing in that. Work that was given or has settled has no trail.
function loops.note(batch)
  local last, seen, trail, said = tonumber(me.read_to) or 0, {}, {}, me.trail or ''
  for n = #batch, 1, -1 do
    local m = batch[n]
    last = math.max(last, tonumber(m.seq) or 0)
    if m.kind ~= 'notice' and m.kind ~= 'reminder' then said = '' end
    if m.kind == 'message' or m.kind == 'request' or m.kind == 'reply' then
      local led = loops.trail(m)
      for at = #led - MARK + 1, 1, -MARK do
        local one = string.sub(led, at, at + MARK - 1)
        if not seen[one] and #trail < MARKS then
          seen[one] = true
          trail[#trail + 1] = one
        end
      end
    end
  end
  if last <= (tonumber(me.read_to) or 0) then return end
  for n = #trail, 1, -1 do said = said .. trail[n] end
  redis.call('HSET', key.agent(args.agent), 'read_to', last, 'trail', said)
end

-- What is known of two agents, kept with one of them; `marks`: of what the caller wrote to the other
-- since it last did so in turn, the first and the last.
local function exchange(keeper, partner, way)
  local known = redis.call('HMGET', key.exchanges(keeper), '@since', partner, way)
  local since = tonumber(known[1])
  if not since or now - since >= tonumber(herd.pair_window) then
    redis.call('DEL', key.exchanges(keeper))
    redis.call('HSET', key.exchanges(keeper), '@since', now)
    since, known = now, {}
  end
  local turns, first, second, told = string.match(known[2] or '0 0 0 ', '^(%d+) (%d+) (%d+) (.*)$')
  return { keeper = keeper, partner = partner, since = since, turns = tonumber(turns), told = told,
    owed = { [keeper] = tonumber(first), [partner] = tonumber(second) }, way = way, marks = known[3] or '' }
end

local function keep(x)
  redis.call('HSET', key.exchanges(x.keeper), x.partner,
    table.concat({ x.turns, x.owed[x.keeper], x.owed[x.partner], x.told }, ' '), x.way, x.marks)
end

-- Whether what the caller read came of what it had written to the other before, by way of whomever.
local function came_round(marks, trail)
  return marks ~= '' and (string.find(trail, string.sub(marks, 1, MARK), 1, true) or
    string.find(trail, string.sub(marks, -MARK), 1, true)) ~= nil
end

-- Counts how often two agents turn to each other: the caller has read what the other wrote, or what
-- came of its own words to the other by way of others, and writes in turn. A burst from one side is no
-- turn, nor are two that cross. The refusal of a turn too many in a window; nil if it may be sent, and
-- whether it was a turn. Kept with the child of the two, or the first of two children, or the one of
-- this herd, for one window of all its conversations: the turns, for each of the two the first message
-- it has not written in turn to (a sequence number, 0: none), and the one first refused.
function loops.pair(id, to, trail)
  local keeper, partner = args.agent, to
  if not string.find(to, '/', 1, true) and (keeper == 'parent' or partner ~= 'parent' and partner < keeper) then
    keeper, partner = partner, keeper
  end
  local x = exchange(keeper, partner, args.agent .. '>' .. to)
  local owed, window = x.owed, tonumber(herd.pair_window)
  local answers = owed[args.agent] > 0 and owed[args.agent] <= (tonumber(me.read_to) or 0)
  local in_turn = answers or came_round(x.marks, trail or '')
  if in_turn then
    if x.turns >= tonumber(herd.pair_rate) then
      if x.told == '' then x.told = id end
      keep(x)
      local what = answers and { "agents '", args.agent, "' and '", to, "' have answered each other " } or
        { "what agent '", args.agent, "' writes to '", to, "' has come round to it by way of others " }
      return stop(x.told, to, answers and 'pair_rate' or 'ring', x.turns, table.concat(what), x.turns,
        ' times within ', text.span(window), ', the limit (pair_rate): it looks like a loop; leave the ',
        'last message unanswered. Open questions can still be answered, and messages be sent again in ',
        text.span(x.since + window - now))
    end
    x.turns, owed[args.agent], x.marks = x.turns + 1, 0, ''
  end
  if owed[to] == 0 then owed[to] = (tonumber(herd.seq) or 0) + 1 end
  x.marks = (x.marks == '' and mark(id) or string.sub(x.marks, 1, MARK)) .. mark(id)
  keep(x)
  return nil, in_turn
end

-- The same of a pair in two herds, as the recipient's counts it: mail has come for one of its agents.
-- `in_turn`: by the count of the other herd, its sender had read and writes in turn.
function loops.arrived(agent, from, in_turn)
  local x = exchange(agent, from, agent .. '>' .. from)
  if in_turn then x.turns = x.turns + 1 end
  if x.owed[agent] == 0 then x.owed[agent] = tonumber(redis.call('HGET', key.herd(), 'seq')) end
  keep(x)
end
