-- All jobs of a run.
--
-- KEYS[1]  see library.lua
-- ARGV[1]  the run
-- Answers  the jobs, each a list of fields and values

local jobs = {}
for _, id in ipairs(redis.call('HVALS', key('run:' .. ARGV[1]))) do
  local job = whole(id)
  if #job > 0 then
    jobs[#jobs + 1] = job
  end
end
return jobs
