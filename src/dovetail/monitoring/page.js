// The server draws; this puts in place what it sends, and keeps what the reader has opened.
"use strict";
const main = document.getElementById("main");
const events = new EventSource(main.dataset.events);

events.onmessage = (event) => {
  const open = main.querySelector("details")?.open;
  main.innerHTML = event.data;
  const details = main.querySelector("details");
  if (details && open) details.open = true;
  document.body.classList.remove("lost");
};

events.addEventListener("over", () => events.close());
events.onerror = () => document.body.classList.add("lost");
