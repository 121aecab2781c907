-- What stops agents that answer one another for ever: the length of a chain of replies, and how
-- often two agents turn to each other. Answers to questions, tasks, settlements and what Tocsin
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

-- What is known of two agents, kept with one of them.
local function exchange(keeper, partner)
  local known = redis.call('HMGET', key.exchanges(keeper), '@since', partner)
  local since = tonumber(known[1])
  if not since or now - since >= tonumber(herd.pair_window) then
    redis.call('DEL', key.exchanges(keeper))
    redis.call('HSET', key.exchanges(keeper), '@since', now)
    since, known = now, {}
  end
  local turns, first, second, told = string.match(known[2] or '0 0 0 ', '^(%d+) (%d+) (%d+) (.*)$')
  return { keeper = keeper, partner = partner, since = since, turns = tonumber(turns), told = told,
    owed = { [keeper] = tonumber(first), [partner] = tonumber(second) } }
end

local function keep(x)
  redis.call('HSET', key.exchanges(x.keeper), x.partner,
    table.concat({ x.turns, x.owed[x.keeper], x.owed[x.partner], x.told }, ' '))
end

-- Counts how often two agents turn to each other: the caller has read what the other wrote, and
-- writes in turn. A burst from one side is no turn, nor are two that cross. The refusal of a turn too
-- many in a window; nil if it may be sent, and whether it was a turn. Kept with the child of the two,
-- or the first of two children, or the one of this herd, for one window of all its conversations: the turns, for each of the two the first
-- message it has not written in turn to (a sequence number, 0: none), and the one first refused.
function loops.pair(id, to)
  local keeper, partner = args.agent, to
  if not string.find(to, '/', 1, true) and (keeper == 'parent' or partner ~= 'parent' and partner < keeper) then
    keeper, partner = partner, keeper
  end
  local x = exchange(keeper, partner)
  local owed, window = x.owed, tonumber(herd.pair_window)
  local in_turn = owed[args.agent] > 0 and owed[args.agent] <= (tonumber(me.read_to) or 0)
  if in_turn then
    if x.turns >= tonumber(herd.pair_rate) then
      if x.told == '' then x.told = id end
      keep(x)
      return stop(x.told, to, 'pair_rate', x.turns, "agents '", args.agent, "' and '", to,
        "' have answered each other ", x.turns, ' times within ', text.span(window),
        ', the limit (pair_rate): it looks like a loop; leave the last message unanswered. Open ',
        'questions can still be answered, and messages be sent again in ',
        text.span(x.since + window - now))
    end
    x.turns, owed[args.agent] = x.turns + 1, 0
  end
  if owed[to] == 0 then owed[to] = (tonumber(herd.seq) or 0) + 1 end
  keep(x)
  return nil, in_turn
end

-- The same of a pair in two herds, as the recipient's counts it: mail has come for one of its agents.
-- `in_turn`: by the count of the other herd, its sender had read and writes in turn.
function loops.arrived(agent, from, in_turn)
  local x = exchange(agent, from)
  if in_turn then x.turns = x.turns + 1 end
  if x.owed[agent] == 0 then x.owed[agent] = tonumber(redis.call('HGET', key.herd(), 'seq')) end
  keep(x)
end
