"""The least a Redis script could do of the same work: no checks, no tokens, no journal."""

from __future__ import annotations

FIRE = """
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, 100)
for i, task in ipairs(due) do
  redis.call('ZREM', KEYS[1], task)
  if redis.call('SET', KEYS[1] .. ':reminded:' .. task .. ':1', ARGV[1], 'NX') then
    redis.call('XADD', KEYS[2], '*', 'r', task, 'e', '1', 's', i)
  end
end
return #due
"""
"""Pops up to 100 expired members, marks each and adds its reminder to a stream."""

SEND = """
redis.call('HSET', KEYS[1] .. ':m:' .. ARGV[1], 'sender', ARGV[2], 'to', ARGV[3], 'body', ARGV[4],
  'at', ARGV[5])
redis.call('ZADD', KEYS[1] .. ':waking', ARGV[5], ARGV[1])
redis.call('XADD', KEYS[1] .. ':inbox', '*', 'm', ARGV[1])
return 'sent'
"""
"""Stores a message, lists it among what wakes, and puts it in its reader's stream."""

REPLY = """
redis.call('HSET', KEYS[1] .. ':m:' .. ARGV[2], 'answer', ARGV[1])
redis.call('ZREM', KEYS[1] .. ':asked', ARGV[2])
redis.call('HSET', KEYS[1] .. ':m:' .. ARGV[1], 'to', ARGV[3], 'body', ARGV[4])
redis.call('XADD', KEYS[1] .. ':inbox', '*', 'm', ARGV[1])
return 'sent'
"""
"""Closes a question and puts its answer in the asker's stream."""
