-- How what is derived from records (sorted sets, stream entries, timers) is compared with them and
-- mended. Every script leaves both in agreement, so what differs when a script looks is damage, and
-- the record is the truth. A record that was lost cannot be made again; what still points at it goes.
-- A key of another type where an index should be can hold nothing of it: it goes, and the records make
-- the index again.
-- What is looked at: the herd, its agents and tasks in `mend_herd`, mail and questions in `mend_mail`,
-- and the other way about, from an index to its records, in `mend_indexes`.

local findings = {}

-- Puts right what is wrong, unless this is only a look, and notes it; what could not be put right is
-- not, but raised.
function mend.wrong(what, id, put_right)
  if args.mend == '1' then put_right() end
  findings[#findings + 1] = { what, id }
end

-- Types of keys that are derived and no sorted sets.
local TYPES = { episodes = 'hash', leads = 'hash', exchanges = 'hash', arrivals = 'hash', alerted = 'hash',
  inbox = 'stream', steer = 'stream', journal = 'stream', watch = 'set', reminded = 'string' }
local seen = {}

-- Whether a key is of its type, or not there; one that is not goes. `id`: whose it is.
function mend.typed(kind, id, name)
  if seen[name] == nil then
    local found = redis.call('TYPE', name).ok
    seen[name] = found == 'none' or found == (TYPES[kind] or 'zset')
    if not seen[name] then
      mend.wrong(kind, id, function()
        redis.call('DEL', name)
        seen[name] = true
        timer.visit()   -- its place among the timers is looked up anew
      end)
    end
  end
  return seen[name]
end

local function all_typed(id, names)
  for kind, name in pairs(names) do mend.typed(kind, id, name) end
end

-- The same of all that is derived in a herd and its partition.
function mend.types()
  all_typed(args.herd, { timers = key.timers(), herds = key.herds(), forwards = key.forwards(),
    planned = key.planned(), lanes = key.lanes(), freed = key.freed(), alerts = key.alerts(),
    alerted = key.alerted(), due = key.due(), waiting = key.waiting(), episodes = key.episodes(),
    tasks = key.tasks(), agents = key.agents(), dead = key.dead(), outbox = key.outbox(),
    arrivals = key.arrivals(), plans = key.plans(), turning = key.turning(), held = key.held(),
    journal = key.journal() })
end

-- The same of an agent of this herd.
function mend.types_of(name)
  if seen[name] or not name or string.find(name, '[@/]') then return end
  seen[name] = true
  all_typed(name, { inbox = key.inbox(name), steer = key.steer(name), instances = key.instances(name),
    waking = key.waking(name), delayed = key.delayed(name), workload = key.workload(name),
    queue = key.queue(name), asked = key.asked(name), asking = key.asking(name),
    answers = key.answers(name), exchanges = key.exchanges(name), leads = key.leads(name) })
end

function mend.findings()
  if #findings > 0 and args.mend == '1' then journal('repaired', { found = findings }) end
  return findings
end

function mend.member(what, set, id, score)
  if tonumber(redis.call('ZSCORE', set, id)) == tonumber(score) then return end
  mend.wrong(what, id, function() redis.call('ZADD', set, score, id) end)
end

function mend.stray(what, set, id)
  if not redis.call('ZSCORE', set, id) then return end
  mend.wrong(what, id, function() redis.call('ZREM', set, id) end)
end

-- A timer at just this time; with `any`, at this time if it is not there at all.
function mend.timed(name, at, any)
  local found = tonumber(redis.call('ZSCORE', key.due(), name))
  if found == tonumber(at) or found and any then return end
  mend.wrong('timers', name, function() timer.set(name, at) end)
end

-- The state of the agent that had this name at `seq`, or with this generation: 'open', 'closing', or
-- 'closed', also where its record has gone or its name belongs to a newer one.
function mend.state_of(name, seq, generation)
  local found = pick(key.agent(name), { 'state', 'born', 'generation' })
  local earlier = seq and tonumber(seq) <= tonumber(found.born or 0) or
    generation and generation ~= found.generation
  return earlier and 'closed' or found.state or 'closed'
end
