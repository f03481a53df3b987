-- Make jobs claimable, each in the place of the one that its run and stage had.
--
-- KEYS, ARGV  see library.lua and new_jobs.lua
-- Answers     nothing of interest

for new in new_jobs() do
  local old_id, old = job_of_stage(new.run_id, new.stage_id)
  -- This very call may have come through before.
  if not (old and old_id == new.id and old.request == REQUEST) then
    make(new, old_id, old)
  end
end
return 1
