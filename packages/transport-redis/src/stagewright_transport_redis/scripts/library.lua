-- What every script begins with: a namespace's keys, and how a job moves between them.
--
-- KEYS[1]  "{namespace}:", with which the name of every key of a namespace begins. The braces make it the hash tag, so
--          all of them are in one slot of a cluster, which is where a script with this key is run. Under it:
--
--   job:<id>             hash  one job: what moves it, and under `text` what it was enqueued with, as JSON that no script
--                              reads; times are microseconds of Unix time as text, "" or no field at all is nothing
--   run:<run id>         hash  the job of each stage: stage id -> job id
--   all                  zset  the ids of all jobs by their position: the order in which they were enqueued
--   position             text  the last position that was given
--   queue:<queue>        zset  PENDING jobs that are due, of one definition: by -priority, then position (see member_of)
--   queues               set   the queues that are not empty
--   delayed              zset  the ids of PENDING jobs that are not due, by when they will be
--   parked:<place>       zset  like a queue: jobs of one queue and one group that was found at its cap
--   parked               set   the places that are not empty
--   parked_of:<group>    set   the queues in which that group has parked jobs
--   ready                text  how many jobs are in queues or parked
--   running              zset  the ids of RUNNING jobs by when their leases were renewed last
--   started              zset  the ids of RUNNING jobs by when they were delivered
--   groups               hash  how many jobs of a group are RUNNING; the group without a value is ""
--   ended                zset  the ids of COMPLETED, FAILED and CANCELLED jobs by when they ended
--   claim:<request>      text  the ids of what one call of dequeue has taken, as JSON; gone after a minute
--   checked              text  the server for which no job is missing any more (see losses.lua)
--   lost                 text  when it was first seen that jobs may be missing, until they are there again
--   work                 channel, on which whoever waits is woken
--
-- A server that is told what a script may touch beforehand has to be told to allow keys of its slot that aren't named.

local PREFIX = KEYS[1]

local function key(name)
  return PREFIX .. name
end

-- Exact up to the year 2255; later times are compared to within a few microseconds.
local function text_of(number)
  return string.format('%.0f', number)
end

local function clock()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local NOW = clock()
local NOW_TEXT = text_of(NOW)

-- The part of a job by which it moves; what else a script wants to know of it is asked for at once.
local FIELDS = {'status', 'queue', 'position', 'job_group', 'priority', 'due_at'}

-- FIELDS of a job and those that are named; nil if there is no such job.
local function load(id, ...)
  local fields = {...}
  local more = #fields
  for number, field in ipairs(FIELDS) do
    fields[more + number] = field
  end
  local values = redis.call('HMGET', key('job:' .. id), unpack(fields))
  if not values[more + 1] then
    return nil
  end
  local job = {}
  for number, field in ipairs(fields) do
    job[field] = values[number] or ''
  end
  return job
end

local function number_of(text)
  return tonumber(text) or 0
end

local function whole(id)
  return redis.call('HGETALL', key('job:' .. id))
end

-- Jobs of one priority are in the order of their members.
local function member_of(id, position)
  return string.format('%016.0f', tonumber(position)) .. id
end

local function id_of(member)
  return string.sub(member, 17)
end

local function place_of(queue, group)
  return #queue .. ':' .. queue .. group
end

local is_work_announced = false

local function announce()
  if not is_work_announced then
    is_work_announced = true
    redis.call('PUBLISH', key('work'), 'jobs')
  end
end

local function put_in_queue(queue, score, member)
  redis.call('ZADD', key('queue:' .. queue), score, member)
  redis.call('SADD', key('queues'), queue)
end

local function forget_queue_if_empty(queue)
  if redis.call('EXISTS', key('queue:' .. queue)) == 0 then
    redis.call('SREM', key('queues'), queue)
  end
end

local function forget_place_if_empty(queue, group)
  local place = place_of(queue, group)
  if redis.call('EXISTS', key('parked:' .. place)) == 0 then
    redis.call('SREM', key('parked'), place)
    redis.call('SREM', key('parked_of:' .. group), queue)
  end
end

-- Give the first parked job of a group in each queue another chance: a place may be free. True if there were any.
local function unpark(group)
  local is_any = false
  for _, queue in ipairs(redis.call('SMEMBERS', key('parked_of:' .. group))) do
    local first = redis.call('ZPOPMIN', key('parked:' .. place_of(queue, group)))
    if first[1] then
      put_in_queue(queue, first[2], first[1])
      is_any = true
    end
    forget_place_if_empty(queue, group)
  end
  return is_any
end

local function park(queue, group, score, member)
  local place = place_of(queue, group)
  redis.call('ZREM', key('queue:' .. queue), member)
  redis.call('ZADD', key('parked:' .. place), score, member)
  redis.call('SADD', key('parked'), place)
  redis.call('SADD', key('parked_of:' .. group), queue)
end

-- A PENDING job goes where it can be claimed, or waits there for its time.
local function push(id, job)
  if job.due_at ~= '' and tonumber(job.due_at) > NOW then
    redis.call('ZADD', key('delayed'), job.due_at, id)
    -- Who waits has to know only of the first.
    if redis.call('ZRANGE', key('delayed'), 0, 0)[1] == id then
      announce()
    end
    return
  end
  put_in_queue(job.queue, text_of(-tonumber(job.priority)), member_of(id, job.position))
  redis.call('INCR', key('ready'))
  announce()
end

local function pull(id, job)
  if redis.call('ZREM', key('delayed'), id) == 1 then
    return
  end
  local member = member_of(id, job.position)
  if redis.call('ZREM', key('queue:' .. job.queue), member) == 1 then
    redis.call('DECR', key('ready'))
    forget_queue_if_empty(job.queue)
    unpark(job.job_group)
  elseif redis.call('ZREM', key('parked:' .. place_of(job.queue, job.job_group)), member) == 1 then
    redis.call('DECR', key('ready'))
    forget_place_if_empty(job.queue, job.job_group)
  end
end

-- Take a job out of wherever its status has put it.
local function leave(id, job)
  if job.status == 'PENDING' then
    pull(id, job)
  elseif job.status == 'RUNNING' then
    redis.call('ZREM', key('running'), id)
    redis.call('ZREM', key('started'), id)
    if redis.call('HINCRBY', key('groups'), job.job_group, -1) <= 0 then
      redis.call('HDEL', key('groups'), job.job_group)
    end
    unpark(job.job_group)
  elseif job.status ~= 'SUSPENDED' then
    redis.call('ZREM', key('ended'), id)
  end
end

-- Needs `run_id` and `stage_id`.
local function drop(id, job)
  leave(id, job)
  redis.call('DEL', key('job:' .. id))
  redis.call('ZREM', key('all'), id)
  redis.call('HDEL', key('run:' .. job.run_id), job.stage_id)
end

local function finish(id)
  redis.call('ZADD', key('ended'), NOW_TEXT, id)
end
