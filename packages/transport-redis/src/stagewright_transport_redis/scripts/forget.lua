-- Forget jobs that ended long ago. At most LIMIT of them.
--
-- KEYS[1]  see library.lua
-- ARGV[1]  for how many microseconds a job that has ended is kept
-- Answers  how many were forgotten

local LIMIT = 100
local before = text_of(NOW - tonumber(ARGV[1]))
local found = redis.call('ZRANGEBYSCORE', key('ended'), '-inf', before, 'LIMIT', 0, LIMIT)
for _, id in ipairs(found) do
  local job = load(id, 'run_id', 'stage_id')
  if job then
    drop(id, job)
  end
  redis.call('ZREM', key('ended'), id)
end
return #found
