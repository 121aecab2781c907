-- Reminders of waits that drag on: at most one an episode. `waiting` says since when, the marker
-- `reminded` that this episode had its one; both change in the script that adds the reminder.

function reminders.id(task, episode) return 'msg_reminder_' .. bare(task) .. '_' .. episode end

local function threshold()
  local minutes = tonumber(herd.stale_wait_threshold)
  if not minutes or minutes < 1 then return nil end
  return minutes * 60000
end

-- When the herd's one `stale` timer is due: the oldest wait plus the threshold. Never while reminders
-- are off or the parent is away; the script that makes it live again calls `fire`.
function reminders.due()
  local wait = threshold()
  local oldest = wait and herd.state == 'open' and
    redis.call('ZRANGE', key.waiting(), 0, 0, 'WITHSCORES')
  if oldest and oldest[1] and lease.live('parent') then return tonumber(oldest[2]) + wait end
end

function reminders.arm()
  local at = reminders.due()
  if at then timer.set('5:stale', at) else timer.clear('5:stale') end
end

-- Pops up to `limit` expired waits and adds the reminder of each, unless its episode had one.
-- Quiet: nothing rings. An entry without a task is dropped.
function reminders.fire(limit)
  local wait, fired = threshold(), {}
  if wait and herd.state == 'open' and lease.live('parent') then
    local expired = redis.call('ZRANGEBYSCORE', key.waiting(), '-inf', now - wait, 'LIMIT', 0, limit)
    if #expired > 0 then
      redis.call('ZREM', key.waiting(), unpack(expired))
      local episodes = redis.call('HMGET', key.episodes(), unpack(expired))
      local seq = redis.call('HINCRBY', key.herd(), 'seq', #expired) - #expired
      for i, task in ipairs(expired) do
        local episode = episodes[i]
        if episode and redis.call('SET', key.reminded(task, episode), now, 'NX') then
          redis.call('XADD', key.inbox('parent'), '*', 'r', task, 'e', episode, 's', seq + i)
          fired[#fired + 1] = task
          alert('reminder', bare(task) .. '_' .. episode, { task = task, episode = episode })
        end
      end
      if #fired > 0 then journal('reminded', { tasks = fired }) end
    end
  end
  reminders.arm()
  return #fired
end

-- As JSON. cjson takes an empty list for an object; no text can hold what is replaced here, because
-- quotes in texts are escaped.
function reminders.encode(data)
  return (string.gsub(cjson.encode(data), '"other_requests":{}', '"other_requests":[]'))
end

local function state_of(agent)
  local record = redis.call('HMGET', key.agent(agent), 'label', 'status', 'turn_state')
  local task = redis.call('ZRANGE', key.workload(agent), 0, 0)[1]
  return {
    agent = agent,
    label = record[1] or '',
    process = record[2] or 'unknown',
    task = task and redis.call('HGET', key.task(task), 'state') or cjson.null,
    present = lease.live(agent),
    turn = record[3] or nil,
  }
end

-- Whether the wait of a reminder that nobody was handed yet is still as old as it says: the oldest
-- question may have been answered since, or the threshold changed. If not, it was never sent.
function reminders.holds(id, episode)
  local task, wait = pick(key.task(id), { 'state', 'episode', 'waiting_since' }), threshold()
  if task.state ~= 'waiting' or task.episode ~= episode then return false end
  if wait and now - tonumber(task.waiting_since) >= wait then return true end
  redis.call('DEL', key.reminded(id, episode))
  redis.call('ZADD', key.waiting(), task.waiting_since, id)
  reminders.arm()
  return false
end

-- What a reminder says, true at this moment; nil when its episode is over.
function reminders.data(id, episode)
  local task = read(key.task(id))
  if task.state ~= 'waiting' or task.episode ~= episode then return nil end
  local open = redis.call('ZRANGE', key.questions(id), 0, 20)
  local request = read(key.message(open[1]))
  local others = {}
  for i = 2, #open do others[#others + 1] = open[i] end
  local since = tonumber(task.waiting_since)
  return {
    about = 'stale_wait', task = id, agent = task.agent,
    label = redis.call('HGET', key.agent(task.agent), 'label') or '',
    description = task.description, waiting_since = since, elapsed_ms = now - since,
    request = open[1], question = request.body, asker = request.sender,
    recipient = state_of(request.to),
    threshold_minutes = tonumber(herd.stale_wait_threshold), episode = tonumber(episode),
    other_requests = others,
    actions = { 'answer', 'remind', 'reroute', 'cancel', 'inspect' },
  }
end
