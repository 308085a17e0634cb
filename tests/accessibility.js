// Returns what keeps readers from a page: images, links and tables without words, headings that skip a level, and text
// with a contrast below 4.5 to 1, the drawers of the theme included.
() => {
  const seen = one => one.checkVisibility({visibilityProperty: true, opacityProperty: true})
  const all = selector => [...document.querySelectorAll(selector)].filter(seen)
  const named = one => one.textContent.trim() || one.ariaLabel || one.title || one.querySelector("img[alt], title")
  const begin = one => one.outerHTML.slice(0, 100)
  const found = [
    ...all("img").filter(one => !one.alt).map(one => `no alternative: ${begin(one)}`),
    ...all("a").filter(one => !named(one)).map(one => `no name: ${begin(one)}`),
    ...all("table").filter(one => !one.querySelector("th")).map(one => `no header: ${begin(one)}`),
  ]
  const levels = all("h1, h2, h3, h4, h5, h6").map(one => [Number(one.tagName[1]), begin(one)])
  levels.forEach(([level, shown], place) => {
    if (level > 1 + (place && levels[place - 1][0])) found.push(`skips a level: ${shown}`)
  })

  const channels = color => {
    const numbers = color.match(/[\d.]+/g).map(Number)
    const [red, green, blue] = color.startsWith("color(") ? numbers.map(one => 255 * one) : numbers
    return [red, green, blue, numbers[3] ?? 1]
  }
  const over = (above, below) => [0, 1, 2].map(i => above[i] * above[3] + below[i] * (1 - above[3]))
  const ancestors = one => one ? [one, ...ancestors(one.parentElement)] : []
  const luminance = color => {
    const [red, green, blue] = color.map(one => one / 255).map(one => one <= .04045 ? one / 12.92 : ((one + .055) / 1.055) ** 2.4)
    return .2126 * red + .7152 * green + .0722 * blue
  }
  const contrast = one => {
    const around = ancestors(one).map(getComputedStyle)
    const paper = around.map(style => channels(style.backgroundColor)).reduceRight((below, above) => over(above, below), [255, 255, 255])
    const [red, green, blue, alpha] = channels(getComputedStyle(one).color)
    const ink = over([red, green, blue, around.reduce((product, style) => product * style.opacity, alpha)], paper)
    const [dark, light] = [luminance(ink), luminance(paper)].sort((a, b) => a - b)
    return (light + .05) / (dark + .05)
  }
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  const weak = new Map()
  while (texts.nextNode()) {
    const one = texts.currentNode.parentElement
    if (!texts.currentNode.data.trim() || !seen(one) || !one.getClientRects().length) continue
    if (contrast(one) < 4.5) weak.set(`${one.tagName} ${one.className}`, `${contrast(one).toFixed(2)}: ${begin(one)}`)
  }
  return [...found, ...[...weak.values()].map(one => `contrast of ${one}`)]
}
