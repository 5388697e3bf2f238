// What only the page can tell: how wide texts are, and whether it is dark.

let measuring: CanvasRenderingContext2D | null = null;

/** Widths in pixels of texts in a font. */
export function textWidths(texts: string[], font: string) {
  measuring ??= document.createElement("canvas").getContext("2d") as CanvasRenderingContext2D;
  const context = measuring;
  context.font = font;
  return texts.map((text) => context.measureText(text).width);
}

function luminance(colour: string) {
  const numbers = colour.match(/[\d.]+/g)?.map(Number) ?? [];
  if (numbers.length < 3 || numbers[3] === 0) return null;
  const [r, g, b] = numbers.map((c) =>
    c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** True if the page around an element is dark, whoever made it so. */
export function isDarkAround(element: Element) {
  for (let node = element.parentElement; node; node = node.parentElement) {
    const light = luminance(getComputedStyle(node).backgroundColor);
    if (light !== null) return light < 0.4;
  }
  return false;
}
