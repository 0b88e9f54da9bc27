// On a phone, the pages of the API fold: names by task, what the neural rankers share, and the text of
// each method.
document.addEventListener("DOMContentLoaded", () => {
  if (!matchMedia("(max-width: 720px)").matches) return;
  const fold = (box, title) => {
    const details = document.createElement("details");
    details.className = "folded";
    const summary = document.createElement("summary");
    summary.textContent = title;
    details.append(summary, ...box.childNodes);
    box.append(details);
  };
  for (const table of document.querySelectorAll("table.autosummary"))
    fold(table.parentElement, `${table.rows.length} names`);
  for (const name of document.querySelectorAll("dl.class dl.field-list > dt"))
    if (name.textContent.startsWith("Other Parameters"))
      fold(name.nextElementSibling, `${name.nextElementSibling.querySelectorAll("dt").length} parameters`);
  for (const text of document.querySelectorAll("dl.method > dd"))
    if (text.firstElementChild) fold(text, text.firstElementChild.textContent);
});
