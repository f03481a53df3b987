-- Take jobs that are due and served; what is to be done for that is bounded, and goes on with the next call.
--
-- KEYS[1]  see library.lua
-- ARGV[1]  the worker
-- ARGV[2]  how many jobs at most
-- ARGV[3]  the request: the same when a call is repeated because its answer was lost
-- ARGV[4]  how many jobs of one group may be RUNNING; "" for no cap
-- ARGV[5]  "1" if only the queues that follow are served
-- ARGV[6]… the queues that are served
-- Answers  whether another call would find more without waiting, the server's time, when the next delayed job is due
--          or "", and the jobs that were taken, each a list of fields and values

local WORKER, LIMIT, REQUEST = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local CAP = tonumber(ARGV[4])
local MOST = 500

local function due_jobs()
  local due = redis.call('ZRANGEBYSCORE', key('delayed'), '-inf', text_of(NOW), 'LIMIT', 0, MOST)
  for _, id in ipairs(due) do
    redis.call('ZREM', key('delayed'), id)
    local job = load(id)
    if job and job.status == 'PENDING' then
      put_in_queue(job.queue, text_of(-tonumber(job.priority)), member_of(id, job.position))
      redis.call('INCR', key('ready'))
    end
  end
  return #due == MOST
end

-- Without a cap nothing is passed over.
local function parked_jobs()
  for _, place in ipairs(redis.call('SRANDMEMBER', key('parked'), 10)) do
    local length = string.match(place, '^(%d+):')
    local queue = string.sub(place, #length + 2, #length + 1 + tonumber(length))
    local group = string.sub(place, #length + 2 + tonumber(length))
    local popped = redis.call('ZPOPMIN', key('parked:' .. place), MOST / 10)
    for number = 1, #popped, 2 do
      put_in_queue(queue, popped[number + 1], popped[number])
    end
    forget_place_if_empty(queue, group)
  end
  return redis.call('EXISTS', key('parked')) == 1
end

local function served_queues()
  if ARGV[5] ~= '1' then
    return redis.call('SMEMBERS', key('queues'))
  end
  local served = {}
  for first = 6, #ARGV, 1000 do
    local names = {unpack(ARGV, first, math.min(first + 999, #ARGV))}
    for number, is_filled in ipairs(redis.call('SMISMEMBER', key('queues'), unpack(names))) do
      if is_filled == 1 then
        served[#served + 1] = names[number]
      end
    end
  end
  return served
end

local function look(head)
  local first = redis.call('ZRANGE', key('queue:' .. head.queue), 0, 0, 'WITHSCORES')
  head.member, head.score = first[1], tonumber(first[2])
  if not head.member then
    redis.call('SREM', key('queues'), head.queue)
  end
end

local function heads_of_queues()
  local heads = {}
  for number, queue in ipairs(served_queues()) do
    heads[number] = {queue = queue}
    look(heads[number])
  end
  return heads
end

local function best_of(heads)
  local best
  for _, head in ipairs(heads) do
    if head.member and (not best or head.score < best.score
        or (head.score == best.score and head.member < best.member)) then
      best = head
    end
  end
  return best
end

local function deliver(id, job, head)
  redis.call('ZREM', key('queue:' .. head.queue), head.member)
  redis.call('DECR', key('ready'))
  local now = text_of(NOW)
  redis.call(
    'HSET', key('job:' .. id), 'status', 'RUNNING', 'worker_id', WORKER, 'started_at', now, 'locked_at', now,
    'updated_at', now, 'due_at', '', 'claim', REQUEST
  )
  redis.call('HINCRBY', key('job:' .. id), 'deliveries', 1)
  redis.call('ZADD', key('running'), now, id)
  redis.call('ZADD', key('started'), now, id)
  return redis.call('HINCRBY', key('groups'), job.job_group, 1)
end

local function answer(is_more, ids)
  local first = redis.call('ZRANGE', key('delayed'), 0, 0, 'WITHSCORES')
  local jobs = {is_more and 1 or 0, text_of(NOW), first[2] and text_of(tonumber(first[2])) or ''}
  for _, id in ipairs(ids) do
    jobs[#jobs + 1] = whole(id)
  end
  return jobs
end

-- What a call took before its answer was lost, but for what somebody else has ended or taken since.
local function still_held(ids)
  local held = {}
  for _, id in ipairs(ids) do
    local job = redis.call('HMGET', key('job:' .. id), 'status', 'claim')
    if job[1] == 'RUNNING' and job[2] == REQUEST then
      held[#held + 1] = id
    end
  end
  return held
end

local before = redis.call('LRANGE', key('claim:' .. REQUEST), 0, -1)
if #before > 0 then
  return answer(false, still_held(before))
end

local is_more = due_jobs()
if not CAP then
  is_more = parked_jobs() or is_more
end
local heads = heads_of_queues()
local taken, steps = {}, 0
while #taken < LIMIT and not is_more do
  local head = best_of(heads)
  if not head then
    break
  end
  local id = id_of(head.member)
  local job = load(id)
  if not job or job.status ~= 'PENDING' or member_of(id, job.position) ~= head.member or job.queue ~= head.queue then
    -- No job says that it is here: it was put here by somebody else, or lost by the server.
    redis.call('ZREM', key('queue:' .. head.queue), head.member)
  elseif CAP and tonumber(redis.call('HGET', key('groups'), job.job_group) or 0) >= CAP then
    park(head.queue, job.job_group, head.score, head.member)
  else
    local running = deliver(id, job, head)
    taken[#taken + 1] = id
    redis.call('RPUSH', key('claim:' .. REQUEST), id)
    if CAP and running < CAP and unpark(job.job_group) then
      heads = heads_of_queues()
      head = nil
    end
  end
  if head then
    look(head)
  end
  steps = steps + 1
  if steps >= MOST then
    is_more = true
  end
end
if #taken > 0 then
  redis.call('EXPIRE', key('claim:' .. REQUEST), 60)
  if CAP then
    announce()
  end
end
return answer(is_more, taken)
