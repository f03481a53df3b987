-- Delete the jobs of some stages of a run, whatever their state.
--
-- KEYS[1]  see library.lua
-- ARGV[1]  the run
-- ARGV[2]  "1" with fairness, so that a place that becomes free is announced
-- ARGV[3]… the stages
-- Answers  how many there were

local deleted = 0
for number = 3, #ARGV do
  local id = redis.call('HGET', key('run:' .. ARGV[1]), ARGV[number])
  local job = id and load(id, 'run_id', 'stage_id')
  if job then
    drop(id, job)
    deleted = deleted + 1
    if ARGV[2] == '1' and job.status == 'RUNNING' then
      announce()
    end
  elseif id then
    redis.call('HDEL', key('run:' .. ARGV[1]), ARGV[number])
  end
end
return deleted
