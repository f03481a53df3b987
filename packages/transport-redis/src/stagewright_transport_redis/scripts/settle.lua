-- Acknowledge a delivery, or change a job whoever owns it: complete, suspend, fail and defer.
--
-- KEYS[1]   see library.lua
-- ARGV[1]   the job
-- ARGV[2]   when the delivery was made; "" without a fence
-- ARGV[3]   the number of the delivery; "" without a fence
-- ARGV[4]   the status that the job gets: COMPLETED, FAILED, SUSPENDED or PENDING
-- ARGV[5]   "1" if the error is to be kept
-- ARGV[6]   the error
-- ARGV[7]   how many failures more
-- ARGV[8]   how many interruptions more
-- ARGV[9]   when it is due, or ""
-- ARGV[10]  how many microseconds from now it is due, or ""
-- ARGV[11]  the request: the same when a call is repeated because its answer was lost
-- ARGV[12]  "1" with fairness, so that a place that becomes free is announced
-- Answers   "acknowledged"; "superseded" if the fence doesn't fit; "missing" without a fence and a job

local id, status = ARGV[1], ARGV[4]
local job = load(id)
if not job then
  return ARGV[2] == '' and 'missing' or 'superseded'
end
if job.request == ARGV[11] then
  return 'acknowledged'
end
local is_owned = job.status == 'RUNNING' and job.started_at == ARGV[2] and job.deliveries == ARGV[3]
if ARGV[2] ~= '' and not is_owned then
  return 'superseded'
end

leave(id, job)
if ARGV[12] == '1' and job.status == 'RUNNING' then
  announce()
end
job.due_at = ARGV[9]
if ARGV[10] ~= '' then
  job.due_at = text_of(NOW + tonumber(ARGV[10]))
end
local now = text_of(NOW)
redis.call(
  'HSET', key('job:' .. id), 'status', status, 'due_at', job.due_at, 'updated_at', now, 'locked_at', '',
  'request', ARGV[11]
)
redis.call('HINCRBY', key('job:' .. id), 'failures', ARGV[7])
redis.call('HINCRBY', key('job:' .. id), 'interruptions', ARGV[8])
if ARGV[5] == '1' then
  redis.call('HSET', key('job:' .. id), 'last_error', ARGV[6], 'has_error', '1')
end
if status == 'COMPLETED' or status == 'FAILED' then
  redis.call('HSET', key('job:' .. id), 'completed_at', now)
  finish(id)
else
  redis.call('HSET', key('job:' .. id), 'worker_id', '')
  if status == 'PENDING' then
    push(id, job)
  end
end
return 'acknowledged'
