// A link to a function that had its place on this page leads to the page of that function.
const old = decodeURIComponent(location.hash);
if (old.startsWith("#marketdata.") && !document.getElementById(old.slice(1))) {
  const found = [...document.links].find((link) => link.hash === old && link.pathname !== location.pathname);
  if (found) location.replace(found.href);
}
