-- How this herd stands to herds that claim to be under it, for the operator's view of the tree.
-- keys: partition
-- args: clock herd claims
-- answers: ties <verdict> ...
-- moves: none
-- memory: allow-oom
-- include: ties

load_herd()
local answer = { 'ties' }
for _, claim in ipairs(cjson.decode(args.claims)) do answer[#answer + 1] = ties.verdict(claim) end
return answer
