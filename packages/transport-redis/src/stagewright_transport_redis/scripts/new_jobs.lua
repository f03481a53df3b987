-- How a job is made; comes before enqueue.lua and resume.lua.
--
-- ARGV[1]  the request: the same when a call is repeated because its answer was lost
-- ARGV[2]  "1" if whoever enqueues has fairness, so that a place that becomes free is announced
-- ARGV[3]… the jobs, NEW_JOB values each, in the order of NEW_FIELDS

local NEW_FIELDS = {
  'id', 'run_id', 'stage_id', 'workflow_id', 'definition_version', 'is_pinned', 'payload', 'priority', 'due_at',
  'max_attempts', 'max_worker_losses', 'job_group', 'queue'
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
  return id, load(id)
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
  local now = text_of(NOW)
  redis.call(
    'HSET', key('job:' .. new.id), 'id', new.id, 'run_id', new.run_id, 'stage_id', new.stage_id,
    'workflow_id', new.workflow_id, 'definition_version', new.definition_version, 'is_pinned', new.is_pinned,
    'payload', new.payload, 'priority', new.priority, 'due_at', new.due_at, 'max_attempts', new.max_attempts,
    'max_worker_losses', new.max_worker_losses, 'job_group', new.job_group, 'queue', new.queue,
    'position', new.position, 'status', 'PENDING', 'created_at', now, 'updated_at', now, 'deliveries', '0',
    'failures', '0', 'worker_losses', '0', 'interruptions', '0', 'worker_id', '', 'started_at', '', 'locked_at', '',
    'completed_at', '', 'last_error', '', 'has_error', '0', 'request', REQUEST
  )
  redis.call('HSET', key('run:' .. new.run_id), new.stage_id, new.id)
  redis.call('ZADD', key('all'), new.position, new.id)
  push(new.id, new)
end
