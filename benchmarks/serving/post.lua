-- wrk -s post.lua URL -- REQUESTS_FILE: posts the requests of a file in turns, each with a trace
-- id that no other has, and prints the result as JSON.
--
-- The file holds, for each request, the line "BYTES_BEFORE BYTES_AFTER" and its bytes before and
-- after the trace id.

local before, after, count = {}, {}, 0

function init(arguments)
   local file = assert(io.open(arguments[1], "rb"))
   while true do
      local line = file:read("*l")
      if not line then break end
      local first, second = line:match("(%d+) (%d+)")
      count = count + 1
      before[count], after[count] = file:read(tonumber(first)), file:read(tonumber(second))
   end
   file:close()
   math.randomseed(os.time())
   prefix, number = string.format("%08x%08x", math.random(2^31), math.random(2^31)), 0
end

function request()
   number = number + 1
   local at = number % count + 1
   return table.concat({before[at], prefix, string.format("%016x", number), after[at]})
end

function done(summary, latency, requests)
   local errors = summary.errors
   io.write(string.format(
      '{"requests": %d, "microseconds": %d, "p50": %.1f, "p99": %.1f, "failed": %d}\n',
      summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
      errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
