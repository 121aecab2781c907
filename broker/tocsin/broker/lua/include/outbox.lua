-- Mail between herds, which may live in other partitions, so that no script can reach both. A member
-- of a herd's `outbox` is one thing to forward, and they sort by herd, news first, oldest first:
--   <other herd>/0<number>/<message>/<state>   what became of mail that the other herd had sent here
--   <other herd>/0<number>/@tie/<what>         of a herd under another, see `ties`
--   <other herd>/1<number>/<message>           mail for the other herd
-- The partition's `forwards` says when each `<herd>/<other herd>` is next to be seen to. In the record
-- of mail to another herd: `state` outgoing, forwarded or refused; `there`, what is known to have
-- become of it at the other side, `there_at`, `there_seq`; `tries`, how often it had to wait.

-- Herd and agent of an address in another herd; nothing for an agent of this one.
function outbox.split(address) return string.match(address or '', '^([^/]+)/(.+)$') end

local function pair(other) return args.herd .. '/' .. other end

-- A pair without anything to forward is not to be seen to; any other at a time.
function outbox.plan(other, at)
  if redis.call('ZLEXCOUNT', key.outbox(), '[' .. other .. '/', '(' .. other .. '0') == 0 then
    redis.call('ZREM', key.forwards(), pair(other))
  else
    redis.call('ZADD', key.forwards(), at, pair(other))
  end
end

function outbox.planned(other) return redis.call('ZSCORE', key.forwards(), pair(other)) end

-- How mail is listed in the outbox.
function outbox.member(other, seq, id) return string.format('%s/1%016.0f/%s', other, seq, id) end

-- A pair that is being seen to, or waits for room at the other side, keeps its time.
local function add(other, member)
  redis.call('ZADD', key.outbox(), 0, member)
  if redis.call('ZADD', key.forwards(), 'NX', now, pair(other)) == 1 then
    redis.call('PUBLISH', doorbell, 'forward')
  end
end

-- Refuses more for a herd that takes none, or for all where none is forwarded. News always fit: there
-- are no more of them than of mail that was taken in.
function outbox.check(other)
  local limit = tonumber(herd.outbox_limit)
  local waiting = redis.call('ZLEXCOUNT', key.outbox(), '[' .. other .. '/1', '(' .. other .. '/2')
  local all = redis.call('ZCARD', key.outbox())
  if waiting < limit and all < 10 * limit then return end
  refuse('queue_full', waiting, " messages wait to be forwarded to herd '", other, "', ", all,
    ' to all herds, and the limit is ', limit, ' and ', 10 * limit, ' (outbox_limit); wait until they ',
    'are (wait=, --wait), and see with `why` what the oldest waits for')
end

-- Accepts mail to an agent of another herd.
function outbox.send(m, other)
  local seq = redis.call('HINCRBY', key.herd(), 'seq', 1)
  m.state = 'outgoing'
  mail.record(m, { 'seq', seq, 'in_turn', m.in_turn and 1 or 0 })
  add(other, outbox.member(other, seq, m.id))
end

-- The herd that sent an envelope hears what became of it here, if that is another one.
function outbox.news(id, m, what)
  local other = outbox.split(m.sender)
  if not other then return end
  local seq = redis.call('HINCRBY', key.herd(), 'seq', 1)
  add(other, string.format('%s/0%016.0f/%s/%s', other, seq, id, what))
end

-- Something of a herd under another is to be told to other herds.
function outbox.tie(others, what)
  local seq = redis.call('HINCRBY', key.herd(), 'seq', 1)
  for _, other in ipairs(others) do add(other, string.format('%s/0%016.0f/@tie/%s', other, seq, what)) end
end

local MAIL = { 'kind', 'sender', 'to', 'delivery', 'thread', 'reply_to', 'hops', 'body', 'data',
  'digest', 'in_turn', 'trail', 'tries' }

-- What is next to be forwarded to a herd: news and mail. Entries whose mail is gone go.
function outbox.next(other, limit)
  local news, posts = {}, {}
  local found = redis.call('ZRANGEBYLEX', key.outbox(), '[' .. other .. '/', '(' .. other .. '0',
    'LIMIT', 0, limit)
  for _, member in ipairs(found) do
    local seq, id, what = string.match(member, '/%d(%d+)/([^/]+)/?(.*)$')
    local ok, m = pcall(pick, key.message(id or ''), what == '' and MAIL or { 'reason' })
    if not ok then m = {} end   -- it was written over
    if id == '@tie' then
      news[#news + 1] = { member, seq, id, what, ties.carried(other, what) }
    elseif what and what ~= '' then
      news[#news + 1] = { member, seq, id, what, m.reason or '' }
    elseif m.kind then
      m.id, m.seq, m.to = id, seq, select(2, outbox.split(m.to))
      posts[#posts + 1] = { member, cjson.encode(m) }
    else
      redis.call('ZREM', key.outbox(), member)
    end
  end
  return news, posts
end

-- What is known of mail that was sent to another herd.
function outbox.sent(id)
  return pick(key.message(id), { 'kind', 'sender', 'sender_generation', 'to', 'state', 'seq', 'there_seq' })
end

-- Whoever sent it is told, quietly, that it was not handled.
local function tell(id, m, about, reason)
  if redis.call('HGET', key.agent(m.sender), 'generation') ~= m.sender_generation then return end
  mail.notice('msg_' .. about .. '_' .. bare(id), m.sender, false, nil, nil,
    { about = about, message = id, kind = m.kind, recipient = m.to, reason = reason })
end

-- The other herd has taken it in. Its record stays until it is known what became of it there, at the
-- longest as long as dead letters do.
function outbox.forwarded(id, m)
  redis.call('HSET', key.message(id), 'state', 'forwarded', 'forwarded_at', now)
  redis.call('HDEL', key.message(id), 'body', 'data', 'error')
  journal('forwarded', { message = id, sender = m.sender, recipient = m.to })
  mail.retire(id, tonumber(herd.dead_retention))
end

function outbox.refused(id, m, reason)
  redis.call('HSET', key.message(id), 'state', 'refused', 'reason', reason, 'ended_at', now)
  journal('refused', { message = id, sender = m.sender, recipient = m.to, reason = reason })
  tell(id, m, 'refused', reason)
  mail.retire(id)
end

-- What became of it at the other side.
function outbox.heard(id, m, what, seq, reason)
  redis.call('HSET', key.message(id), 'there', what, 'there_at', now, 'there_seq', seq)
  if what == 'handled' then
    redis.call('HDEL', key.message(id), 'reason')
    journal('handled', { agent = m.to, messages = { id } })
    return mail.retire(id)
  end
  redis.call('HSET', key.message(id), 'reason', reason)
  journal('dead', { message = id, kind = m.kind, sender = m.sender, recipient = m.to, reason = reason })
  tell(id, m, 'undelivered', reason)
end

-- Drops some of what a herd that ends could not get rid of; how much.
function outbox.drop(limit)
  local left = redis.call('ZRANGE', key.outbox(), 0, limit - 1)
  for _, member in ipairs(left) do
    local other, kind, id = string.match(member, '^([^/]+)/(%d)%d+/([^/]+)')
    if kind == '1' then redis.call('DEL', key.message(id)) end
    redis.call('ZREM', key.outbox(), member)
    redis.call('ZREM', key.forwards(), pair(other))
  end
  return #left
end
