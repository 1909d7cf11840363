-- Makes an answer 503 of what a collector did not take. Envoy counts spans as sent when it sends
-- them, and a call of gRPC that failed as an answer 200.
local TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
local OWN = "envoy.filters.http.lua"
-- The frame of gRPC (5 bytes), the field partial_success, its length, and in it a number of
-- rejected spans, which protobuf leaves out if it is 0.
local REJECTED = "^.....\10[\128-\255]*[^\128-\255]\8"

function envoy_on_request(handle)
  if handle:headers():get(":path") == TRACES then
    handle:streamInfo():dynamicMetadata():set(OWN, "spans", true)
  end
end

function envoy_on_response(handle)
  local status = handle:headers():get("grpc-status")
  local rejected = false
  if status == nil then
    -- Of log lines Envoy counts by itself those that a collector rejects.
    local own = handle:streamInfo():dynamicMetadata():get(OWN)
    if own and own.spans then
      local body = handle:body(true)
      rejected = body:getBytes(0, body:length()):find(REJECTED) ~= nil
    end
    local trailers = handle:trailers()
    status = trailers and trailers:get("grpc-status")
  end
  if status ~= "0" or rejected then
    handle:headers():replace(":status", "503")
  end
end
