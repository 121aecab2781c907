-- Limits of text, counted in characters of UTF-8 as people count them; and spans of time in words.

function text.check(field, value, limit)
  limit = tonumber(limit)
  if #value <= limit then return end
  local _, characters = string.gsub(value, '[^\128-\191]', '')
  if characters > limit then
    refuse('too_large', field, ' has ', characters, ' characters and the limit is ', limit,
      '; put the rest in a file and send its path')
  end
end

-- A length of time for people, rounded up.
function text.span(ms)
  if ms <= 120000 then return math.ceil(ms / 1000) .. ' s' end
  if ms <= 7200000 then return math.ceil(ms / 60000) .. ' min' end
  return math.ceil(ms / 3600000) .. ' h'
end

-- The body and data of an envelope.
function text.check_envelope(body, data, field)
  text.check(field or 'body', body, herd.body_limit)
  if #body + #data > tonumber(herd.envelope_limit) then
    refuse('too_large', field or 'body and data', ' of ', #body + #data, ' bytes: the limit is ',
      herd.envelope_limit, '; put the rest in a file and send its path')
  end
end
