-- Renew leases.
--
-- KEYS[1]  see library.lua
-- ARGV     the leases, three values each: the job, when the delivery was made, the number of the delivery
-- Answers  for each lease 1 if its delivery owns the job, else 0

local answers = {}
for number = 1, #ARGV, 3 do
  local id = ARGV[number]
  local job = load(id, 'started_at', 'deliveries')
  local is_owned = job and job.status == 'RUNNING' and job.started_at == ARGV[number + 1]
    and job.deliveries == ARGV[number + 2]
  if is_owned then
    redis.call('HSET', key('job:' .. id), 'locked_at', NOW_TEXT)
    redis.call('ZADD', key('running'), NOW_TEXT, id)
  end
  answers[#answers + 1] = is_owned and 1 or 0
end
return answers
