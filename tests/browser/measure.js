// Runs behind axe in a copy of the page, inside a frame as wide as the window that is meant; leaves what it found in the outer page.
const root = document.documentElement;
const size = (element) => parseFloat(getComputedStyle(element).fontSize);
const leadsNowhere = (link) => document.getElementById(link.hash.slice(1)) === null;
const texts = [...document.querySelectorAll("p, li, dd, td, th, h1, h2, .said")].filter((element) => element.offsetParent !== null);
const told = {
  width: innerWidth,
  overflow: root.scrollWidth - innerWidth,
  ground: getComputedStyle(document.body).backgroundColor,
  dark: matchMedia("(prefers-color-scheme: dark)").matches,
  smallest: Math.min(...texts.map(size)),
  drawings: [...document.querySelectorAll("svg")].map((one) => [one.getBoundingClientRect().width, one.getBoundingClientRect().height]),
  broken: [...document.querySelectorAll("a[href^='#']")].filter(leadsNowhere).length,
};
const faults = (found) =>
  found.violations.map((one) => ({
    id: one.id,
    impact: one.impact,
    nodes: one.nodes.map((node) => `${node.html.slice(0, 200)} ${node.failureSummary}`),
  }));
const say = (violations) => {
  parent.document.body.textContent = `TOLD${JSON.stringify({ ...told, violations })}TOLD`;
};
axe.run(document, { resultTypes: ["violations"] }).then(
  (found) => say(faults(found)),
  (error) => say([{ id: `axe failed: ${error}`, impact: "critical", nodes: [] }]),
);
