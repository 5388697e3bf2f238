// Mounts the views of a page: runs after bundle.js, in a saved page and in the book.
const read = (id) => JSON.parse(document.getElementById(id).textContent);
const addresses = new Map(); // of what is shown, by the view's place
const mount = ({ machines, ...options }) => {
  if (machines !== undefined) options.machines = read(`data${machines}`);
  const place = document.getElementById(options.id);
  const mounted = mountView(place, read(`data${options.data}`), options, () => fileOf(options.file));
  addresses.set(place, mounted.address);
};
const [first, ...others] = document.getElementById("views") ? read("views") : []; // the others after the first picture
if (first) mount(first);
requestAnimationFrame(() =>
  setTimeout(() => {
    others.forEach(mount);
    for (const [view, address] of addresses) {
      const section = view.parentElement; // what the view shows is explained before its address is offered
      (section.querySelector(".moments") ?? section).append(copyButton(address));
    }
    goToPlace();
  }),
);
addEventListener("hashchange", goToPlace);
new ResizeObserver(reachable).observe(document.querySelector("article") ?? document.body);

// What scrolls sideways can be scrolled by keys, too.
function reachable() {
  for (const box of document.querySelectorAll("pre, table, .output, p:has(> math)"))
    if (box.scrollWidth > box.clientWidth && !box.querySelector("a, button, input")) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
}

// What a view runs is in the page, or in a script next to the page or in the book's root, which a page from disk may load.
function fileOf(name) {
  const bytes = (text) => {
    const characters = atob(text);
    const all = new Uint8Array(characters.length);
    for (let n = 0; n < all.length; n++) all[n] = characters.charCodeAt(n); // sooner than `from`, which iterates
    return all.buffer;
  };
  const inside = document.getElementById(`file-${name}`);
  if (inside) return Promise.resolve(bytes(inside.textContent));
  return new Promise((resolve, reject) => {
    self.watchItDecodeFile = (text) => resolve(bytes(text));
    const script = document.createElement("script");
    const root = document.documentElement.dataset.content_root ?? "";
    document.head.append(Object.assign(script, { src: `${root}${name}.js`, onerror: reject }));
  });
}

// An address tells the place as well: #at=… is the id of a section or of a view.
function goToPlace() {
  const at = new URLSearchParams(location.hash.slice(1)).get("at");
  const place = at && document.getElementById(at);
  if (!place) return;
  place.scrollIntoView();
  place.querySelector("a, [tabindex]")?.focus({ preventScroll: true });
}

function copyButton(address) {
  const [button, [said, done]] = [document.createElement("button"), read("copied")];
  Object.assign(button, { type: "button", className: "copy", textContent: said });
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(new URL(address(), location.href).href);
    button.textContent = done;
    setTimeout(() => (button.textContent = said), 2000);
  });
  return button;
}
