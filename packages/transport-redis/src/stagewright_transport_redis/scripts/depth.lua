-- How many jobs are PENDING and due.
--
-- KEYS[1]  see library.lua
-- Answers  the number

return tonumber(redis.call('GET', key('ready')) or 0) + redis.call('ZCOUNT', key('delayed'), '-inf', NOW_TEXT)
