-- Whether jobs may have been lost: the server isn't the one for which that was looked after last, or was emptied.
--
-- KEYS[1]  see library.lua
-- ARGV[1]  "" asks; anything else is what was answered, once it was looked after
-- Answers  "" if nothing is missing, else what to say afterwards

if ARGV[1] ~= '' then
  local looked_for, loss = string.match(ARGV[1], '^(%S+) (%S+)$')
  -- A server that was emptied since has no such mark, or that of the next look.
  if loss and redis.call('GET', key('lost')) == loss then
    redis.call('SET', key('checked'), looked_for)
    redis.call('DEL', key('lost'))
  end
  return ''
end
-- A server has another run id after each start; one that came in its place, as a replica does, has its own.
local information = redis.pcall('INFO', 'server')
local server = type(information) == 'string' and string.match(information, 'run_id:(%x+)') or 'unknown'
if redis.call('GET', key('checked')) == server then
  return ''
end
redis.call('SET', key('lost'), text_of(NOW), 'NX')
return server .. ' ' .. redis.call('GET', key('lost'))
