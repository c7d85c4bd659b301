/* A schedule as one HTML page that needs nothing else: the drawing with memory curves; the pointer on a box says which
 * action it is, when it runs and what the rank holds; a click shows one micro-batch alone. */
#include "artifact/draw.h"

static const char head[] = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                           "<meta name=\"viewport\" content=\"width=device-width\">\n";
static const char style[] =
    "<style>\n"
    "body{margin:12px;background:#fff;color:#222;font:13px \"DejaVu Sans\",Verdana,\"Segoe UI\",Arial,sans-serif}\n"
    "#view{overflow-x:auto}#view.fit svg{width:100%;height:auto}\n"
    "#tip{position:fixed;display:none;pointer-events:none;background:#222;color:#fff;padding:6px 9px;border-radius:3px;"
    "white-space:pre;line-height:1.45;z-index:1}\n"
    "svg.one [data-i],svg.one .n text,svg.one .k{opacity:.13}svg.one .on{opacity:1}svg.one .b.on{stroke:#000}\n"
    "[data-a]:hover{stroke:#000;stroke-width:1.4}label{color:#555}\n"
    "@media print{label{display:none}}\n"
    "</style>\n";
static const char script[] =
    "<script>\n"
    "(function () {\n"
    "  var view = document.getElementById('view'), svg = view.querySelector('svg'), tip = "
    "document.getElementById('tip');\n"
    "  var fit = document.getElementById('fit');\n"
    "  var kinds = {F: 'forward', B: 'backward', I: 'input gradient', W: 'weight gradient'};\n"
    "  function scale() { view.className = fit.checked ? 'fit' : ''; }\n"
    "  fit.checked = svg.width.baseVal.value < 1.35 * view.clientWidth;\n"
    "  fit.addEventListener('change', scale);\n"
    "  scale();\n"
    "  function box(event) { return event.target.closest ? event.target.closest('[data-a]') : null; }\n"
    "  view.addEventListener('pointermove', function (event) {\n"
    "    var at = box(event);\n"
    "    if (!at) { tip.style.display = 'none'; return; }\n"
    "    var word = /^(\\d+)([A-Z_]+)(\\d*)$/.exec(at.dataset.a), name = at.dataset.a + ': ';\n"
    "    tip.textContent = word[3] === '' ?\n"
    "      name + 'gradients of chunk ' + word[1] + ' reduced over replicas\\n' + at.dataset.t :\n"
    "      name + kinds[word[2]] + ' of micro-batch ' + word[3] + ' through chunk ' + word[1] + '\\n' + at.dataset.t "
    "+\n"
    "      '\\nthe rank holds ' + at.dataset.h;\n"
    "    tip.style.display = 'block';\n"
    "    tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + 'px';\n"
    "    tip.style.top = Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8) + 'px';\n"
    "  });\n"
    "  view.addEventListener('pointerleave', function () { tip.style.display = 'none'; });\n"
    "  view.addEventListener('click', function (event) {\n"
    "    var at = box(event), chosen = svg.querySelectorAll('.on');\n"
    "    for (var i = 0; i < chosen.length; i++) chosen[i].classList.remove('on');\n"
    "    svg.classList.toggle('one', !!at);\n"
    "    if (!at) return;\n"
    "    var same = svg.querySelectorAll('[data-i=\"' + at.dataset.i + '\"]');\n"
    "    for (var k = 0; k < same.length; k++) same[k].classList.add('on');\n"
    "  });\n"
    "})();\n"
    "</script>\n";

void draw_html(Arena *arena, const Document *document, const Measure *measure, Text *out) {
  Picture picture;
  picture_make(arena, document, measure, &picture);
  text_printf(out, "%s<title>", head);
  xml_put(out, picture_title(&picture));
  text_printf(out, "</title>\n%s</head>\n<body>\n<div id=\"view\">\n", style);
  svg_put(&picture, true, out);
  text_printf(out,
              "</div>\n<label><input type=\"checkbox\" id=\"fit\"> fit to the window</label> "
              "<label>&nbsp; point at a box for its times; click it to see its micro-batch alone</label>\n"
              "<div id=\"tip\"></div>\n%s</body>\n</html>\n",
              script);
}
