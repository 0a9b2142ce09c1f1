// The theme of the site reports to the console on each page; messages of anything else stay.
const report = console.log;
console.log = (...parts) => {
  if (!String(parts[0]).startsWith("[PST]")) report(...parts);
};
