-- Goes through all sales on each call, instead of keeping a sorted set.
local best = 0
for product = 1, 5000000 do
    local sold = (product * 7919) % 10007
    if sold > best then
        best = sold
    end
end
return best
