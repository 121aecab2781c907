-- Opens a herd, or reopens it with its token, and starts an instance of its parent.
-- keys: partition
-- args: clock herd agent token instance version reopening settings given sources under
-- answers: opened <herd record> | reopened <herd record>
-- moves: none
-- include: seat timer lease reminders outbox ties

local known = read(key.herd())
if known.state then
  local parent = redis.call('HGET', key.agent('parent'), 'token')
  if parent ~= args.token then
    if args.reopening == '1' then seat.prove() end
    refuse('herd_exists', "herd '", args.herd, "' is ", known.state, '; ', known.state == 'open' and
      'open it with its token, or take another name' or
      'its name is free again when its records end, so take another one')
  end
  seat.prove()
  local under = args.under ~= '' and cjson.decode(args.under).under
  if under and under ~= herd.under then
    refuse('herd_exists', "herd '", args.herd, "' is under ", herd.under or 'no other', ', not under ',
      under, '; it stays where it was opened, so open it without `under`, or take another name')
  end
elseif args.reopening == '1' then
  seat.load()
end

local function store(fields)
  for field, value in pairs(cjson.decode(fields)) do redis.call('HSET', key.herd(), field, value) end
end
if not known.state then
  store(args.settings)
  redis.call('HSET', key.herd(), 'state', 'open', 'opened_at', now, 'opened_by', args.instance,
    'sources', args.sources)
  redis.call('ZADD', key.herds(), now, args.herd)
  redis.call('ZADD', key.agents(), now, 'parent')
  redis.call('HSET', key.agent('parent'), 'state', 'open', 'generation', 1, 'token', args.token,
    'role', 'parent', 'label', '', 'registered_at', now)
  if args.under ~= '' then
    store(args.under)
    redis.call('HSET', key.herd(), 'tie_at', now)
  end
  seat.load()
  journal('opened', { under = herd.under })
  ties.claim()
  timer.set('9:forget:journal', now + tonumber(herd.journal_retention))
elseif redis.call('ZSCORE', key.instances('parent'), args.instance) then   -- by this very call
  seat.load()
else
  store(args.given)
  local given, sources = cjson.decode(args.given), cjson.decode(herd.sources)
  for field in pairs(given) do sources[field] = 'argument' end
  if given.journal_retention then timer.set('9:forget:journal', now) end
  redis.call('HSET', key.herd(), 'sources', cjson.encode(sources))
  seat.load()
end
lease.touch()
lease.runs(args.version, 'turning')
reminders.arm()
return { known.state and 'reopened' or 'opened', redis.call('HGETALL', key.herd()) }
