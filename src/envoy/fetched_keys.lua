-- Judges the key set (RFC 7517) with which an identity provider answers, before Envoy's filter of
-- tokens reads it. A refused set becomes an answer 502 without a body: tokens are answered 401.
--
-- It reads no JSON. Names and values that it looks for are there as they are, since a text with
-- another escape than "\/", which PHP writes, is refused. So it may count too many, and never too few.
local MOST_BYTES, MOST_KEYS, MOST_MICROSECONDS = @BYTES@, @KEYS@, @TIME@
local P384, P521, OTHER = @P384@, @P521@, @OTHER@
local EXPONENTS = { AQAB = true, EQ = true, Aw = true }
-- 4096 bits in base64url, which may be padded.
local MODULUS = 684

local function count(text, pattern)
  local _, found = text:gsub(pattern, "")
  return found
end

local function is_rsa_usual(text)
  for modulus in text:gmatch('"n"%s*:%s*"([^"]*)"') do
    if #modulus > MODULUS then return false end
  end
  for exponent in text:gmatch('"e"%s*:%s*"([^"]*)"') do
    if not EXPONENTS[exponent] then return false end
  end
  return true
end

local function is_accepted(text)
  if #text > MOST_BYTES or text:find("\\[^/]") then return false end
  -- Envoy reads an object of certificates as keys, too.
  if text:find("-----BEGIN", 1, true) then return false end
  local keys = count(text, '"kty"')
  if keys > MOST_KEYS then return false end
  local p384, p521 = count(text, '"P%-384"'), count(text, '"P%-521"')
  local others = math.max(keys - p384 - p521, 0)
  local time = p384 * P384 + p521 * P521 + others * OTHER
  return time <= MOST_MICROSECONDS and is_rsa_usual(text)
end

function envoy_on_response(handle)
  local status = handle:headers():get(":status")
  if status ~= "200" then return end
  -- Whatever fails from here on, the set is refused.
  handle:headers():replace(":status", "502")
  local body = handle:body(true)
  local ran, accepted = pcall(is_accepted, body:getBytes(0, body:length()))
  if ran and accepted then
    -- The headers of before the wait for the body cannot be used any more.
    handle:headers():replace(":status", status)
  else
    body:setBytes("")
  end
end
