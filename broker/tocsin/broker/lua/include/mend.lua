-- How what is derived from records (sorted sets, stream entries, timers) is compared with them and
-- mended. Every script leaves both in agreement, so what differs when a script looks is damage, and
-- the record is the truth. A record that was lost cannot be made again; what still points at it goes.
-- What is looked at: the herd, its agents and tasks in `mend_herd`, mail and questions in `mend_mail`,
-- and the other way about, from an index to its records, in `mend_indexes`.

local findings = {}

-- Notes what is wrong, and puts it right unless this is only a look.
function mend.wrong(what, id, put_right)
  findings[#findings + 1] = { what, id }
  if args.mend == '1' then put_right() end
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
