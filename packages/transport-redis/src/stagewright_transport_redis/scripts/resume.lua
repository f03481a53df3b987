-- Wake SUSPENDED jobs, enqueue missing and ended ones, and leave alone what is claimable or claimed.
--
-- KEYS, ARGV  see library.lua and new_jobs.lua
-- Answers     the jobs of these stages as they stand now, each a list of fields and values

local standing = {}
for new in new_jobs() do
  local id, job = job_of_stage(new.run_id, new.stage_id)
  if job and job.status == 'SUSPENDED' then
    redis.call('HSET', key('job:' .. id), 'status', 'PENDING', 'due_at', '', 'updated_at', NOW_TEXT)
    job.due_at = ''
    push(id, job)
  elseif not job or (job.status ~= 'PENDING' and job.status ~= 'RUNNING') then
    make(new, id, job)
    id = new.id
  end
  standing[#standing + 1] = whole(id)
end
return standing
