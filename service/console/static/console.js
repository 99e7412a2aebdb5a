// Times in the zone of the reader, and pages that change by themselves while they are shown.
// Without this script, pages have UTC and are loaded again by hand.
"use strict";

function showLocalTimes(root) {
  const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
  for (const time of root.querySelectorAll("time")) {
    time.title = time.textContent;
    time.textContent = format.format(new Date(time.dateTime));
  }
}

async function refresh(part, seconds) {
  if (!document.hidden) {
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.redirected) { location.reload(); return; }
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const found = fresh.getElementById(part.id);
      if (answer.ok && found) {
        showLocalTimes(found);
        part.replaceWith(found);
        part = found;
      }
      document.getElementById("lost").hidden = answer.ok;
    } catch {
      document.getElementById("lost").hidden = false;
    }
  }
  if (part.dataset.seconds) { setTimeout(refresh, seconds * 1000, part, seconds); }
}

showLocalTimes(document);
for (const part of document.querySelectorAll("[data-seconds]")) {
  const seconds = Number(part.dataset.seconds);
  setTimeout(refresh, seconds * 1000, part, seconds);
}
