// Lines of CSV by the rule of the files of a release: control characters escaped, nothing that a spreadsheet takes for a
// formula, text in quotes; and a file of them for who reads the page.
const csvLine = values => {
  const signs = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"};
  const escaped = v => v.replace(/[\x00-\x1f\x7f-\x9f\\]/g, c => signs[c] || "\\x" + c.charCodeAt(0).toString(16).padStart(2, "0"));
  const textOf = v => escaped(v).replace(/^(?=[\s\p{Z}\p{C}']*[=+\-@\uff1d\uff0b\uff0d\uff20])/u, "'");
  const cellOf = v => v === null || v === undefined ? "" : typeof v === "string" ? '"' + textOf(v).replaceAll('"', '""') + '"' : v;
  return values.map(cellOf).join(",");
};
const saveCsv = (lines, name) => {
  const a = document.createElement("a");
  a.href = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], {type: "text/csv"}));
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 1000);
};
