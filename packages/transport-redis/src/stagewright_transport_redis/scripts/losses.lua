-- Whether jobs may have been lost: the server isn't the one for which that was looked after last, or was emptied.
--
-- KEYS[1]  see library.lua
-- ARGV[1]  "" asks; anything else says for which server it was looked after
-- Answers  "" if nothing is missing, else what to say afterwards

if ARGV[1] ~= '' then
  redis.call('SET', key('checked'), ARGV[1])
  return ''
end
-- A server has another run id after each start; one that came in its place, as a replica does, has its own.
local information = redis.pcall('INFO', 'server')
local server = type(information) == 'string' and string.match(information, 'run_id:(%x+)') or 'unknown'
return redis.call('GET', key('checked')) == server and '' or server
