(() => {
  const form = document.querySelector(".filter");
  const find = document.getElementById("find");
  const bad = document.getElementById("bad");
  const named = document.querySelectorAll("[data-name]");
  const filter = () => {
    const wanted = find.value.trim().toLowerCase();
    for (const each of named) {
      const hit = each.dataset.name.toLowerCase().includes(wanted);
      each.hidden = !hit || (bad.checked && each.dataset.verdict === "identical");
    }
  };
  if (form) {
    form.hidden = false;
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", filter);
  }
  const unfold = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (target instanceof HTMLDetailsElement) target.open = true;
  };
  addEventListener("hashchange", unfold);
  for (const link of document.querySelectorAll(".overview a")) {
    link.addEventListener("click", () => { document.getElementById(link.hash.slice(1)).open = true; });
  }
  addEventListener("beforeprint", () => {
    for (const each of document.querySelectorAll("details.table")) each.open = true;
  });
  unfold();
})();
