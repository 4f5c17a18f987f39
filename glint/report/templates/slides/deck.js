// A narrow screen reads the slides as a page, notes and all; so does a browser without scripts. The speaker view's small frames stay slides.
const asked = new URLSearchParams(location.search);
const narrow = window === window.top && matchMedia("(max-width: 47rem)").matches;
if (!narrow || asked.get("view") === "print" || asked.has("print-pdf")) {
  document.documentElement.classList.add("deck");
  document.getElementById("deck").classList.add("reveal");
  Reveal.initialize({
    width: 1200, height: 750, margin: 0.04, minScale: 0.1, maxScale: 2.5, center: false, hash: true, slideNumber: "c/t",
    transition: "none", backgroundTransition: "none", scrollActivationWidth: null, pdfSeparateFragments: false,
    showNotes: asked.has("showNotes") ? asked.get("showNotes") : false, plugins: [RevealNotes],
  });
} else {
  addEventListener("hashchange", openLinked);
  openLinked();
}

// A link to a slide (`#/7`) leads to the same slide of the page.
function openLinked() {
  const [, number] = location.hash.match(/^#\/(\d+)$/) ?? [];
  document.querySelectorAll("#deck .slides > section")[number]?.scrollIntoView();
}

const typed = document.getElementById("typed");
const hex = (byte) => "\\x" + byte.toString(16).padStart(2, "0");
const glyph = (byte) => (byte === 32 ? "\u2423" : byte > 32 && byte < 127 ? String.fromCharCode(byte) : hex(byte));

function cell(byte) {
  const item = document.createElement("li");
  for (const [tag, text] of [["b", glyph(byte)], ["span", byte], ["i", byte + Number(typed.dataset.offset)]]) {
    item.appendChild(document.createElement(tag)).textContent = text;
  }
  return item;
}

typed.addEventListener("input", () => {
  const bytes = [...new TextEncoder().encode(typed.value)];
  document.getElementById("encoded").replaceChildren(...bytes.slice(0, 60).map(cell));
});
