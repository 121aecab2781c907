-- Timers of a herd: members of its `due` set, scored with the fleet's time they fire at. Members
-- of one millisecond fire in the order of their names, so the number in front is the order:
--   0:close:<agent>|herd  1:deadline:<task>  2:reply:<request>  3:ceiling:<ask>  4:window:<ask>
--   5:stale  6:deliver:<message>  6:turn:<agent>  7:lease:<agent>  7:attend:<ask>  8:away:<agent>
--   9:forget:<m|t|p|a>:<id>  9:forget:herd|journal
-- A partition's `timers` hold each herd's earliest. `commit` keeps it, and rings the doorbell when
-- the partition's earliest moved forward, which is the only time a scheduler sleeps too long.

local changed, visited = false, false

function timer.set(member, at)
  redis.call('ZADD', key.due(), at, member)
  changed = true
end

function timer.clear(member)
  if redis.call('ZREM', key.due(), member) == 1 then changed = true end
end

-- A visit puts a herd with a backlog behind all herds that were due before now.
function timer.visit() changed, visited = true, true end

-- When the server's own clock shows `at`, in the fleet's time.
function timer.on_wall(at) return math.ceil(now + (at - wall) * factor) end

function timer.commit()
  if not changed then return end
  local earliest = redis.call('ZRANGE', key.due(), 0, 0, 'WITHSCORES')
  if not earliest[1] then
    redis.call('ZREM', key.timers(), args.herd)
    return
  end
  local at = tonumber(earliest[2])
  if visited and at < now then at = now end
  if tonumber(redis.call('ZSCORE', key.timers(), args.herd)) == at then return end
  local first = redis.call('ZRANGE', key.timers(), 0, 0, 'WITHSCORES')
  redis.call('ZADD', key.timers(), at, args.herd)
  if not first[1] or at < tonumber(first[2]) then
    redis.call('PUBLISH', doorbell, 'timer')
  end
end
