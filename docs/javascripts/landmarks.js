// The theme puts the buttons of each block of code into a <nav> without a name. Readers who jump between landmarks would
// meet every block on the way.
new MutationObserver(() => {
  for (const nav of document.querySelectorAll("nav.md-code__nav:not([role])")) nav.setAttribute("role", "none")
}).observe(document.documentElement, {childList: true, subtree: true})
