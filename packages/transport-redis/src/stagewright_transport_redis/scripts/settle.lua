-- Acknowledge a delivery, or change a job whoever owns it: complete, suspend, fail and defer.
--
-- KEYS[1]   see library.lua
-- ARGV[1]   the job
-- ARGV[2]   when the delivery was made; "" without a fence
-- ARGV[3]   the number of the delivery; "" without a fence
-- ARGV[4]   the request: the same when a call is repeated because its answer was lost
-- ARGV[5]   "1" with fairness, so that a place that becomes free is announced
-- ARGV[6]   the status that the job gets: COMPLETED, FAILED, SUSPENDED or PENDING
-- ARGV[7]   how many failures more; nothing more need be given where it is all
-- ARGV[8]   how many interruptions more
-- ARGV[9]   when it is due, or ""
-- ARGV[10]  how many microseconds from now it is due, or ""
-- ARGV[11]  the error, if one is to be kept
-- Answers   "acknowledged"; "superseded" if the fence doesn't fit; "missing" without a fence and a job

local id, REQUEST, status = ARGV[1], ARGV[4], ARGV[6]
local job = load(id, 'started_at', 'deliveries', 'request', 'failures', 'interruptions')
if not job then
  return ARGV[2] == '' and 'missing' or 'superseded'
end
if job.request == REQUEST then
  return 'acknowledged'
end
local is_owned = job.status == 'RUNNING' and job.started_at == ARGV[2] and job.deliveries == ARGV[3]
if ARGV[2] ~= '' and not is_owned then
  return 'superseded'
end

leave(id, job)
if ARGV[5] == '1' and job.status == 'RUNNING' then
  announce()
end
job.due_at = ARGV[9] or ''
if (ARGV[10] or '') ~= '' then
  job.due_at = text_of(NOW + tonumber(ARGV[10]))
end
local is_ended = status == 'COMPLETED' or status == 'FAILED'
local changes = {
  'status', status, 'due_at', job.due_at, 'updated_at', NOW_TEXT, 'locked_at', '', 'request', REQUEST,
  is_ended and 'completed_at' or 'worker_id', is_ended and NOW_TEXT or ''
}

local function change(field, value)
  changes[#changes + 1] = field
  changes[#changes + 1] = value
end

for field, more in pairs({failures = number_of(ARGV[7]), interruptions = number_of(ARGV[8])}) do
  if more > 0 then
    change(field, text_of(number_of(job[field]) + more))
  end
end
if ARGV[11] then
  change('last_error', ARGV[11])
end
redis.call('HSET', key('job:' .. id), unpack(changes))
if is_ended then
  finish(id)
elseif status == 'PENDING' then
  push(id, job)
end
return 'acknowledged'
