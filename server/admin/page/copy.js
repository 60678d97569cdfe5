'use strict';
// Each command of a page gets a button that copies it. The page is whole without this.
// Browsers offer navigator.clipboard over https and on this machine alone; elsewhere the text is selected and copied.
function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text.data);
  getSelection().setBaseAndExtent(text, 0, text, text.data.length);
  return document.execCommand('copy') ? Promise.resolve() : Promise.reject();
}
for (const pre of document.querySelectorAll('pre')) {
  const text = pre.firstChild, button = document.createElement('button');
  button.textContent = 'copy';
  button.onclick = () => copy(text).then(() => { button.textContent = 'copied'; setTimeout(() => { button.textContent = 'copy'; }, 1500); }, () => {});
  pre.append(button);
}
