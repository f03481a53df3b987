-- Make a run's PENDING and SUSPENDED jobs CANCELLED.
--
-- KEYS[1]  see library.lua
-- ARGV[1]  the run
-- Answers  how many were cancelled

local cancelled = 0
for _, id in ipairs(redis.call('HVALS', key('run:' .. ARGV[1]))) do
  local job = load(id)
  if job and (job.status == 'PENDING' or job.status == 'SUSPENDED') then
    leave(id, job)
    redis.call('HSET', key('job:' .. id), 'status', 'CANCELLED', 'completed_at', NOW_TEXT, 'updated_at', NOW_TEXT)
    finish(id)
    cancelled = cancelled + 1
  end
end
return cancelled
