-- Take jobs that are due and served; what is to be done for that is bounded, and goes on with the next call.
--
-- KEYS[1]  see library.lua
-- ARGV[1]  the worker
-- ARGV[2]  how many jobs at most
-- ARGV[3]  the request: the same when a call is repeated because its answer was lost
-- ARGV[4]  how many jobs of one group may be RUNNING; "" for no cap
-- ARGV[5]  "1" if only the queues that follow are served
-- ARGV[6]… the queues that are served
-- Answers  one text of JSON, a list: 1 if another call would find more without waiting, else 0; the server's time; when
--          the next delayed job is due, or null; and the jobs that were taken, each a list of what it was enqueued with,
--          its start, and how many deliveries, failures and lost workers it has had

local WORKER, LIMIT, REQUEST = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local CAP = tonumber(ARGV[4])
local MOST = 500
local AHEAD = 50

local function load_whole(id)
  return load(id, 'started_at', 'deliveries', 'failures', 'worker_losses', 'text', 'claim')
end

local function due_jobs()
  local due = redis.call('ZRANGEBYSCORE', key('delayed'), '-inf', NOW_TEXT, 'LIMIT', 0, MOST)
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
  local places = redis.call('SRANDMEMBER', key('parked'), 10)
  for _, place in ipairs(places) do
    local length = string.match(place, '^(%d+):')
    local queue = string.sub(place, #length + 2, #length + 1 + tonumber(length))
    local group = string.sub(place, #length + 2 + tonumber(length))
    local popped = redis.call('ZPOPMIN', key('parked:' .. place), MOST / 10)
    for number = 1, #popped, 2 do
      put_in_queue(queue, popped[number + 1], popped[number])
    end
    forget_place_if_empty(queue, group)
  end
  return #places > 0 and redis.call('EXISTS', key('parked')) == 1
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

-- Take out of its queue what was taken or passed over, and forget the queue if that was all.
local function clear(head)
  if #head.gone > 0 then
    redis.call('ZREM', key('queue:' .. head.queue), unpack(head.gone))
  end
  if (#head.gone > 0 or head.is_touched) and not head.member then
    forget_queue_if_empty(head.queue)
  end
  head.gone, head.is_touched = {}, false
end

-- The next job of a queue, of which some are read at a time.
local function step(head, wanted)
  head.place = head.place + 2
  head.member, head.score = head.read[head.place], tonumber(head.read[head.place + 1])
  if head.member or head.is_end then
    return
  end
  clear(head)
  head.read = redis.call('ZRANGE', key('queue:' .. head.queue), 0, wanted - 1, 'WITHSCORES')
  head.is_end = #head.read < 2 * wanted
  head.place = 1
  head.member, head.score = head.read[1], tonumber(head.read[2])
  if not head.member then
    redis.call('SREM', key('queues'), head.queue)
  end
end

local function heads_of_queues(wanted)
  local heads = {}
  for number, queue in ipairs(served_queues()) do
    heads[number] = {queue = queue, gone = {}, read = {}, place = -1}
    step(heads[number], wanted)
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

local running = {}

local function running_of(group)
  if not running[group] then
    running[group] = {before = number_of(redis.call('HGET', key('groups'), group)), taken = 0}
  end
  return running[group].before + running[group].taken
end

local function deliver(id, job)
  job.started_at = NOW_TEXT
  job.deliveries = text_of(number_of(job.deliveries) + 1)
  redis.call(
    'HSET', key('job:' .. id), 'status', 'RUNNING', 'worker_id', WORKER, 'started_at', NOW_TEXT,
    'locked_at', NOW_TEXT, 'updated_at', NOW_TEXT, 'due_at', '', 'deliveries', job.deliveries,
    'claim', REQUEST
  )
  running_of(job.job_group)
  running[job.job_group].taken = running[job.job_group].taken + 1
end

-- What is the same for all that were taken, at once.
local function count(ids)
  local leases = {}
  for _, id in ipairs(ids) do
    leases[#leases + 1] = NOW_TEXT
    leases[#leases + 1] = id
  end
  redis.call('DECRBY', key('ready'), #ids)
  redis.call('ZADD', key('running'), unpack(leases))
  redis.call('ZADD', key('started'), unpack(leases))
  for group, jobs in pairs(running) do
    if jobs.taken > 0 then
      redis.call('HINCRBY', key('groups'), group, jobs.taken)
    end
  end
  redis.call('SET', key('claim:' .. REQUEST), cjson.encode(ids), 'EX', 60)
end

local function answer(is_more, jobs)
  local first = redis.call('ZRANGE', key('delayed'), 0, 0, 'WITHSCORES')
  local parts = {is_more and '1' or '0', NOW_TEXT, first[2] and text_of(tonumber(first[2])) or 'null'}
  for _, job in ipairs(jobs) do
    local values = {
      job.text, job.started_at, text_of(number_of(job.deliveries)), text_of(number_of(job.failures)),
      text_of(number_of(job.worker_losses))
    }
    parts[#parts + 1] = '[' .. table.concat(values, ',') .. ']'
  end
  return '[' .. table.concat(parts, ',') .. ']'
end

local before = redis.call('GET', key('claim:' .. REQUEST))
if before then
  local jobs = {}
  for _, id in ipairs(cjson.decode(before)) do
    local job = load_whole(id)
    -- Not what somebody else has ended or taken since the answer was lost.
    if job and job.status == 'RUNNING' and job.claim == REQUEST then
      jobs[#jobs + 1] = job
    end
  end
  return answer(false, jobs)
end

local is_more = due_jobs()
if not CAP then
  is_more = parked_jobs() or is_more
end
local heads = heads_of_queues(math.min(LIMIT, AHEAD))
local taken, jobs, steps = {}, {}, 0
while #taken < LIMIT and not is_more do
  local head = best_of(heads)
  if not head then
    break
  end
  local id = id_of(head.member)
  local job = load_whole(id)
  local is_new_look = false
  if not job or job.status ~= 'PENDING' or member_of(id, job.position) ~= head.member or job.queue ~= head.queue then
    -- No job says that it is here: it was put here by somebody else, or lost by the server.
    head.gone[#head.gone + 1] = head.member
  elseif CAP and running_of(job.job_group) >= CAP then
    -- At once, since it may come back at once.
    park(head.queue, job.job_group, head.score, head.member)
    head.is_touched = true
  else
    if #taken == 0 then
      -- First of all: a server that is full lets a script go on that began by making room.
      redis.call('ZREM', key('queue:' .. head.queue), head.member)
      head.is_touched = true
    else
      head.gone[#head.gone + 1] = head.member
    end
    deliver(id, job)
    taken[#taken + 1] = id
    jobs[#jobs + 1] = job
    is_new_look = CAP and running_of(job.job_group) < CAP and unpark(job.job_group)
  end
  local wanted = math.min(math.max(LIMIT - #taken, 1), AHEAD)
  if is_new_look then
    for _, one in ipairs(heads) do
      clear(one)
    end
    heads = heads_of_queues(wanted)
  else
    step(head, wanted)
  end
  steps = steps + 1
  if steps >= MOST then
    is_more = true
  end
end
for _, head in ipairs(heads) do
  clear(head)
end
if #taken > 0 then
  count(taken)
  if CAP then
    announce()
  end
end
return answer(is_more, jobs)
