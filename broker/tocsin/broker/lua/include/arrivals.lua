-- Mail from another herd (`args.origin`), as this herd judges it.

-- Whether this herd takes mail from the other: one of its names, or patterns with one `*`.
local function welcome()
  for name in string.gmatch(herd.accepts_from or '', '[^,]+') do
    local pattern = string.gsub(string.gsub(name, '%-', '%%-'), '%*', '.*')
    if string.match(args.origin, '^' .. pattern .. '$') then return true end
  end
  return false
end

-- Whether mail to a child answers what that child itself had written to the sender.
local function answers(m, from, to)
  local asked = m.reply_to and outbox.sent(m.reply_to) or {}
  return asked.sender == m.to and asked.to == from and asked.sender_generation == to.generation
end

local function check(m, from)
  if not herd.state then refuse('unknown_herd', "there is no herd '", args.herd, "' in fleet '", fleet, "'") end
  if herd.state ~= 'open' then refuse('herd_closed', "herd '", args.herd, "' is ", herd.state) end
  if not welcome() then
    refuse('forbidden', "herd '", args.herd, "' takes no mail from herd '", args.origin,
      "'; its parent may name it in its setting accepts_from")
  end
  local to = pick(key.agent(m.to), { 'state', 'generation' })
  if m.to ~= 'parent' and not answers(m, from, to) then
    refuse('forbidden', 'only the parent of another herd can be written to, and ', m.to,
      ' has not written what this answers, or that is too long ago; write to ', args.herd, '/parent')
  end
  if to.state ~= 'open' then refuse('agent_closed', "agent '", m.to, "' was closed") end
  if redis.call('EXISTS', key.message(m.id)) == 1 then
    refuse('duplicate_conflict', 'herd ', args.herd, ' has another message ', m.id)
  end
  text.check_envelope(m.body or '', m.data or '')
  room.check(m.to)
end

-- Takes mail in, or says why not: 'refused' for good, 'later' while there is no room.
function arrivals.judge(m)
  local from = args.origin .. '/' .. m.sender
  local ok, no = pcall(function() check(m, from) end)
  if ok then
    mail.send({ id = m.id, kind = m.kind, sender = from, to = m.to, delivery = m.delivery,
      wakes = true, thread = m.thread, reply_to = m.reply_to, hops = m.hops, body = m.body,
      data = m.data, digest = m.digest, trail = m.trail })
    loops.arrived(m.to, from, m.in_turn == '1')
    return 'forwarded', ''
  end
  if type(no) ~= 'table' or not no.refused then error(no) end
  return no.refused[2] == 'queue_full' and 'later' or 'refused', no.refused[3]
end
