-- wrk -s post.lua URL -- BODY_FILE [NAME VALUE]...: posts the file, and says what came of it in JSON.

function init(given)
   local file = assert(io.open(given[1], "rb"))
   wrk.method, wrk.body = "POST", file:read("*a")
   file:close()
   for i = 2, #given, 2 do
      wrk.headers[given[i]] = given[i + 1]
   end
end

function done(summary, latency, requests)
   local errors = summary.errors
   io.write(string.format(
      '{"requests": %d, "microseconds": %d, "p50": %.1f, "p99": %.1f, "failed": %d}\n',
      summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
      errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
