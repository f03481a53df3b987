-- What is to be known of the server that has the namespace.
--
-- KEYS[1]  see library.lua
-- Answers  what it says of itself, or "" where it says nothing

local answer = ''
for _, section in ipairs({'server', 'memory'}) do
  local said = redis.pcall('INFO', section)
  if type(said) == 'string' then
    answer = answer .. said .. '\n'
  end
end
return answer
