-- Jobs, the last enqueued first. At most MOST are looked at.
--
-- KEYS[1]  see library.lua
-- ARGV[1]  the position before which to begin, or "+inf"
-- ARGV[2]  how many jobs at most
-- ARGV[3]  "1" if only jobs of a workflow are wanted
-- ARGV[4]  that workflow
-- ARGV[5]  the statuses that are wanted, each with a space before and after it; "" for any
-- Answers  the position before which to go on, or "" at the end, and the jobs, each a list of fields and values

local MOST = 200
local wanted, found, last = tonumber(ARGV[2]), {}, ''
local ids = redis.call('ZREVRANGEBYSCORE', key('all'), '(' .. ARGV[1], '-inf', 'WITHSCORES', 'LIMIT', 0, MOST)
for number = 1, #ids, 2 do
  local id = ids[number]
  local values = redis.call('HMGET', key('job:' .. id), 'status', 'workflow_id')
  last = text_of(tonumber(ids[number + 1]))
  if values[1] and (ARGV[3] ~= '1' or values[2] == ARGV[4])
      and (ARGV[5] == '' or string.find(ARGV[5], ' ' .. values[1] .. ' ', 1, true)) then
    found[#found + 1] = whole(id)
    if #found == wanted then
      return {last, found}
    end
  end
end
return {#ids == 2 * MOST and last or '', found}
