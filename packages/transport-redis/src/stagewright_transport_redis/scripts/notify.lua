-- Wake whoever waits.
--
-- KEYS[1]  see library.lua
-- ARGV[1]  what there may be to do
-- Answers  nothing of interest

redis.call('PUBLISH', key('work'), ARGV[1])
return 1
