-- Sessions of hosts that serve an agent, and the paths by which it can be woken. In its record:
--   sessions          JSON: of each session (FIELDS) what it is, its paths in its order, the instances
--                     that spoke for it, until when that alone is a sign of its life, and whether the
--                     parent was told of it beside another
--   paths             JSON: of each path when a try by it was last confirmed (0: never), and how many
--                     in a row came to nothing since
--   sessions_told     how often the parent was told of several
--   waits:<instance>  this instance has waited for a turn
-- In a message's record, of a try that was reported: `wake:<path>` (when, result, how often, when it was
-- confirmed, detail), and in `tried` the last that seemed to go well, whose, until that is confirmed.
-- What confirms a try is that the mail is handed over after it.

local VAIN, PATHS, SESSIONS = 3, 20, 50
local FIELDS = { 'host', 'session', 'state', 'since', 'paths', 'instances', 'lasts', 'announced' }
local TRY = '^(%d+) (%a+) (%d+) (%S+) ?(.*)$'

local function decoded(json)
  local ok, found = pcall(cjson.decode, json or '[]')
  return ok and type(found) == 'table' and found or {}
end

-- Whether an instance that spoke for a session is a sign of its life. One that does not renew its lease
-- is shared by all commands of its seat, and speaks for a session no longer than its own words do.
local function speaks(agent, instance, lasts)
  local ends = tonumber(redis.call('ZSCORE', key.instances(agent), instance) or 0)
  return ends > wall and (ends >= FOREVER or tonumber(lasts) > wall or
    redis.call('HEXISTS', key.agent(agent), 'loops:' .. instance) == 1)
end

-- A session as it is stored; nil of what is damaged.
local function session_of(row)
  if type(row) ~= 'table' or #row ~= #FIELDS then return end
  local session = {}
  for i, field in ipairs(FIELDS) do session[field] = row[i] end
  return session
end

-- The sessions that are alive, oldest first.
function hosts.live(agent, json)
  local live = {}
  for _, row in ipairs(decoded(json)) do
    local each, instances = session_of(row), {}
    for instance in string.gmatch(each and each.instances or '', '%S+') do
      if speaks(agent, instance, each.lasts) then instances[#instances + 1] = instance end
    end
    if #instances > 0 then
      each.instances, each.instance = table.concat(instances, ' '), instances[#instances]
      live[#live + 1] = each
    end
  end
  return live
end

local function keep(live)
  local rows = {}
  for i, each in ipairs(live) do
    rows[i] = {}
    for n, field in ipairs(FIELDS) do rows[i][n] = each[field] end
  end
  if #rows == 0 then return redis.call('HDEL', key.agent(args.agent), 'sessions') end
  redis.call('HSET', key.agent(args.agent), 'sessions', cjson.encode(rows))
end

-- As rows.
function hosts.rows(sessions)
  local rows = {}
  for i, each in ipairs(sessions) do
    rows[i] = { each.host, each.session, each.instance, each.state, string.format('%.0f', each.since), each.paths }
  end
  return rows
end

local function is_proven(known) return known ~= nil and known[1] > 0 and known[2] < VAIN end

local function paths_of(json)
  local paths = decoded(json)
  for path, each in pairs(paths) do
    if type(each) ~= 'table' or type(each[1]) ~= 'number' or type(each[2]) ~= 'number' then paths[path] = nil end
  end
  return paths
end

local function path_of(agent, known, sessions)
  if known.state ~= 'open' then return '' end
  if known.turn_state then return 'turn' end
  local instances = redis.call('ZREVRANGEBYSCORE', key.instances(agent), '+inf',
    '(' .. string.format('%.0f', wall), 'LIMIT', 0, 100)
  if #instances == 0 then return '' end
  for i, instance in ipairs(instances) do instances[i] = 'waits:' .. instance end
  for _, waits in ipairs(redis.call('HMGET', key.agent(agent), unpack(instances))) do
    if waits then return 'bell' end
  end
  local paths = paths_of(known.paths)
  for _, each in ipairs(sessions) do
    for path in string.gmatch(each.paths, '%S+') do
      if is_proven(paths[path]) then return path end
    end
  end
  return ''
end

-- The path by which an agent can be woken now, '' if nothing speaks for any; and its sessions.
function hosts.path(agent)
  local known = pick(key.agent(agent), { 'state', 'turn_state', 'sessions', 'paths' })
  local sessions = known.sessions and hosts.live(agent, known.sessions) or {}
  return path_of(agent, known, sessions), sessions
end

local function keep_paths(paths) redis.call('HSET', key.agent(args.agent), 'paths', cjson.encode(paths)) end

-- A try is confirmed: its path is proven.
local function prove(id, path, try)
  local at, result, times, _, detail = string.match(try or '', TRY)
  redis.call('HDEL', key.message(id), 'tried')
  if not at then return end
  redis.call('HSET', key.message(id), 'wake:' .. path,
    table.concat({ at, result, times, string.format('%.0f', now), detail }, ' '))
  local paths = paths_of(redis.call('HGET', key.agent(args.agent), 'paths'))
  if not is_proven(paths[path]) then
    journal('path_proven', { agent = args.agent, path = path, message = id })
  end
  paths[path] = { now, 0 }
  keep_paths(paths)
end

-- The caller is handed mail for which somebody tried to wake it.
function hosts.confirm(m)
  local path, agent, generation = string.match(m.tried, '^(%S+) (%S+) (%S+)$')
  if agent == args.agent and generation == me.generation then prove(m.id, path, m['wake:' .. path]) end
end

-- Whether a session that offers the path is at work: then it looks when it comes to it.
local function at_work(path)
  for _, each in ipairs(hosts.live(args.agent, redis.call('HGET', key.agent(args.agent), 'sessions'))) do
    if each.state == 'working' and string.find(' ' .. each.paths .. ' ', ' ' .. path .. ' ', 1, true) then
      return true
    end
  end
  return false
end

-- A try to wake the caller for this mail, made at `at`.
function hosts.tried(path, ok, at, mail_of, detail)
  local paths = paths_of(redis.call('HGET', key.agent(args.agent), 'paths'))
  local known, count = paths[path], 0
  for _ in pairs(paths) do count = count + 1 end
  if not known and count >= PATHS then
    refuse('invalid_input', "wakes of agent '", args.agent, "' by ", count,
      ' paths were reported already, which is as many as are kept; use one of those')
  end
  known = known or { 0, 0 }
  local was_proven = is_proven(known)
  if not ok or not at_work(path) then known[2] = known[2] + 1 end
  paths[path] = known
  keep_paths(paths)
  if was_proven and not is_proven(known) then
    journal('path_lost', { agent = args.agent, path = path, tries = known[2] })
  end
  for _, m in ipairs(mail_of) do
    local times = string.match(m['wake:' .. path] or '', '^%d+ %a+ (%d+)') or 0
    local try = table.concat({ string.format('%.0f', at), ok and 'ok' or 'failed', times + 1, '-', detail }, ' ')
    redis.call('HSET', key.message(m.id), 'wake:' .. path, try)
    if ok then
      redis.call('HSET', key.message(m.id), 'tried', path .. ' ' .. args.agent .. ' ' .. me.generation)
      if math.max(tonumber(m.shown_at) or 0, tonumber(m.taken_at) or 0) > at then prove(m.id, path, try) end
    end
  end
end

-- One quiet notice when sessions beside the oldest have come: nobody runs two on one seat on purpose.
local function announce(live)
  local new = false
  for i = 2, #live do
    new = new or live[i].announced == 0
    live[i].announced = 1
  end
  if not new then return end
  local nth = redis.call('HINCRBY', key.agent(args.agent), 'sessions_told', 1)
  local sessions = {}
  for i, each in ipairs(live) do sessions[i] = { host = each.host, session = each.session, since = each.since } end
  journal('sessions', { agent = args.agent, sessions = sessions })
  mail.notice('msg_sessions_' .. args.agent .. '_' .. me.generation .. '_' .. nth, 'parent', false, nil, nil,
    { about = 'sessions', agent = args.agent, sessions = sessions })
end

-- Instances in the order in which they spoke last.
local function joined_by(instances, instance)
  local others = {}
  for each in string.gmatch(instances, '%S+') do
    if each ~= instance then others[#others + 1] = each end
  end
  others[#others + 1] = instance
  return table.concat(others, ' ')
end

-- A session of the caller as it is now: the others that are alive.
function hosts.report(host, session, state, paths)
  local live, mine, others = hosts.live(args.agent, redis.call('HGET', key.agent(args.agent), 'sessions')), nil, {}
  for _, each in ipairs(live) do
    if each.host == host and each.session == session then mine = each else others[#others + 1] = each end
  end
  if state == 'ended' then
    live = others
    if mine then journal('session_ended', { agent = args.agent, host = host, session = session }) end
  elseif mine then
    mine.instances = joined_by(mine.instances, args.instance)
  else
    mine = { host = host, session = session, since = now, instances = args.instance, announced = 0 }
    live[#live + 1] = mine
    if #live > SESSIONS then table.remove(live, 1) end
    journal('session_started', { agent = args.agent, host = host, session = session })
  end
  if mine then mine.state, mine.paths, mine.lasts = state, paths, manual and 0 or wall + tonumber(herd.lease) end
  announce(live)
  keep(live)
  local status = 'idle'
  for _, each in ipairs(live) do
    if each.state == 'working' then status = 'working' end
  end
  if redis.call('HGET', key.agent(args.agent), 'status') ~= status then
    redis.call('HSET', key.agent(args.agent), 'status', status, 'status_at', now)
    journal('status', { agent = args.agent, status = status })
  end
  return others
end
