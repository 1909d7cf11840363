-- A token bucket of a worker: requests beyond it are answered 429, as by a provider with a limit.
local tokens, last = @AT_ONCE@, 0
function envoy_on_request(handle)
  local now = handle:timestamp()
  tokens = math.min(@AT_ONCE@, tokens + (now - last) * @PER_SECOND@ / 1000)
  last = now
  if tokens < 1 then
    handle:respond({[":status"] = "429"}, "")
    return
  end
  tokens = tokens - 1
end
