"""HTML pages of pictures: one file with hover text, where pointing at a gradient highlights its value."""

from __future__ import annotations

from html import escape

from fxgrad.tools.pictures.picture import Picture
from fxgrad.tools.pictures.svg import svg_text
from fxgrad.tools.pictures.theme import Theme

STYLE = """\
body { margin: 0; font-family: ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; background: #ffffff;
  color: #1f2328; }
main { padding: 1.5em; overflow: auto; } h1 { font-size: 1.1em; margin: 0 0 1em; }
svg g[data-box] { cursor: pointer; } svg g.fxp-dim { opacity: 0.25; }
svg g.fxp-near .fxp-shape { stroke-width: 3; }
#told { position: fixed; right: 1em; top: 1em; max-width: 40em; padding: 0.7em 1em; white-space: pre-wrap;
  background: #f6f8fa; border: 1px solid #d0d7de; border-radius: 6px; font-size: 0.85em; display: none; }
@media (prefers-color-scheme: dark) { body { background: #0d1117; color: #e6edf3; }
  #told { background: #191e24; border-color: #545d68; } }"""

SCRIPT = """\
const boxes = [...document.querySelectorAll('g[data-box]')], lines = [...document.querySelectorAll('g[data-from]')];
const told = document.getElementById('told');
const near = key => {
  const keys = new Set([key]);
  for (const line of lines) {
    if (line.dataset.from === key) keys.add(line.dataset.to);
    if (line.dataset.to === key) keys.add(line.dataset.from);
  }
  for (const box of boxes) {
    if (box.dataset.twin === key) keys.add(box.dataset.box);
    if (box.dataset.box === key && box.dataset.twin) keys.add(box.dataset.twin);
  }
  return keys;
};
const show = key => {
  const keys = key === null ? null : near(key);
  for (const box of boxes) {
    box.classList.toggle('fxp-dim', keys !== null && !keys.has(box.dataset.box));
    box.classList.toggle('fxp-near', keys !== null && keys.has(box.dataset.box));
  }
  for (const line of lines)
    line.classList.toggle('fxp-dim', keys !== null && line.dataset.from !== key && line.dataset.to !== key);
};
for (const box of boxes) {
  const note = box.querySelector('title');
  box.addEventListener('mouseenter', () => {
    show(box.dataset.box);
    told.textContent = note ? note.textContent : '';
    told.style.display = note ? 'block' : 'none';
  });
  box.addEventListener('mouseleave', () => { show(null); told.style.display = 'none'; });
}"""


def html_text(picture: Picture, theme: Theme | None = None) -> str:
    """Return a page with the picture, which loads nothing.

    Raises `UnsupportedError` if the layout library is not installed.
    """
    title = escape(picture.title or "program")
    return "\n".join([
        "<!DOCTYPE html>", '<html lang="en">', '<head><meta charset="utf-8">', f"<title>{title}</title>",
        '<meta name="viewport" content="width=device-width, initial-scale=1">', f"<style>\n{STYLE}\n</style></head>",
        f"<body><main><h1>{title}</h1>", svg_text(picture, theme).rstrip(), '</main><div id="told"></div>',
        f"<script>\n{SCRIPT}\n</script></body>", "</html>"]) + "\n"
