-- End leases: those that were not renewed, or those of deliveries that last for too long. At most LIMIT of them.
--
-- KEYS[1]  see library.lua
-- ARGV[1]  "stale" or "runaway"
-- ARGV[2]  the age in microseconds that a lease or a delivery has to exceed
-- ARGV[3]  the error; the name of the worker is added to it for "stale"
-- ARGV[4]  "1" with fairness, so that a place that becomes free is announced
-- Answers  whether there may be more, and the jobs as they stand now, each a list of fields and values

local LIMIT = 100
local is_stale = ARGV[1] == 'stale'
local before = '(' .. text_of(NOW - tonumber(ARGV[2]))
local found = redis.call(
  'ZRANGEBYSCORE', key(is_stale and 'running' or 'started'), '-inf', before, 'LIMIT', 0, LIMIT
)
local jobs = {}
for _, id in ipairs(found) do
  local job = load(id, 'worker_id', 'worker_losses', 'max_worker_losses')
  if not job or job.status ~= 'RUNNING' then
    redis.call('ZREM', key('running'), id)
    redis.call('ZREM', key('started'), id)
  else
    leave(id, job)
    if ARGV[4] == '1' then
      announce()
    end
    local error = ARGV[3]
    local losses = number_of(job.worker_losses)
    if is_stale then
      error = error .. job.worker_id
      losses = losses + 1
    end
    redis.call(
      'HSET', key('job:' .. id), 'updated_at', NOW_TEXT, 'locked_at', '', 'last_error', error,
      'worker_losses', text_of(losses), 'due_at', ''
    )
    if is_stale and losses < tonumber(job.max_worker_losses) then
      redis.call('HSET', key('job:' .. id), 'status', 'PENDING', 'worker_id', '')
      job.due_at = ''
      push(id, job)
    else
      redis.call('HSET', key('job:' .. id), 'status', 'FAILED', 'completed_at', NOW_TEXT)
      finish(id)
    end
    jobs[#jobs + 1] = whole(id)
  end
end
return {#found == LIMIT and 1 or 0, jobs}
