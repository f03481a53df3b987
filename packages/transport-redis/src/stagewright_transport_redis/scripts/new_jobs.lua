-- How a job is made; comes before enqueue.lua and resume.lua.
--
-- ARGV[1]  the request: the same when a call is repeated because its answer was lost
-- ARGV[2]  "1" if whoever enqueues has fairness, so that a place that becomes free is announced
-- ARGV[3]… the jobs, NEW_JOB values each, in the order of NEW_FIELDS

local NEW_FIELDS = {
  'id', 'run_id', 'stage_id', 'workflow_id', 'queue', 'job_group', 'priority', 'due_at', 'max_worker_losses', 'text'
}
local NEW_JOB = #NEW_FIELDS
local REQUEST, IS_FAIR = ARGV[1], ARGV[2] == '1'

local function new_jobs()
  local number = 3
  return function()
    if number > #ARGV then
      return nil
    end
    local new = {}
    for offset, field in ipairs(NEW_FIELDS) do
      new[field] = ARGV[number + offset - 1]
    end
    number = number + NEW_JOB
    return new
  end
end

-- The id of the job that a stage has, and the job; an id whose job is gone counts as none.
local function job_of_stage(run_id, stage_id)
  local id = redis.call('HGET', key('run:' .. run_id), stage_id)
  if not id then
    return nil, nil
  end
  return id, load(id, 'run_id', 'stage_id', 'request')
end

local function make(new, old_id, old)
  if old then
    drop(old_id, old)
    if IS_FAIR and old.status == 'RUNNING' then
      announce()
    end
  end
  new.position = text_of(redis.call('INCR', key('position')))
  new.status = 'PENDING'
  redis.call(
    'HSET', key('job:' .. new.id), 'status', 'PENDING', 'queue', new.queue, 'position', new.position,
    'job_group', new.job_group, 'priority', new.priority, 'due_at', new.due_at, 'run_id', new.run_id,
    'stage_id', new.stage_id, 'workflow_id', new.workflow_id, 'max_worker_losses', new.max_worker_losses,
    'created_at', NOW_TEXT, 'updated_at', NOW_TEXT, 'request', REQUEST, 'text', new.text
  )
  redis.call('HSET', key('run:' .. new.run_id), new.stage_id, new.id)
  redis.call('ZADD', key('all'), new.position, new.id)
  push(new.id, new)
end
