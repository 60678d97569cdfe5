'use strict';
// The page is whole without this: it keeps the numbers moving.
const at = id => document.getElementById(id);
const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
function size(n) {
  let i = 0;
  while (n >= 1023.95 && i < units.length - 1) { n /= 1024; i++; }
  return (i === 0 ? n : n < 9.995 ? n.toFixed(2) : n < 99.95 ? n.toFixed(1) : n.toFixed(0)) + ' ' + units[i];
}
const share = r => (100 * r).toFixed(1) + ' %';
let before = null;
function rate(now, field) {
  if (!before || now.now_ms <= before.now_ms) return '';
  return size(Math.max(0, now[field] - before[field]) / (now.now_ms - before.now_ms) * 1000) + '/s';
}
const count = (n, one, many) => n + ' ' + (n === 1 ? one : many);
const two = n => String(Math.floor(n)).padStart(2, '0');
const span = s => s < 60 ? Math.floor(s) + ' s' : s < 3600 ? Math.floor(s / 60) + 'm' + two(s % 60) + 's'
  : s < 86400 ? Math.floor(s / 3600) + 'h' + two(s % 3600 / 60) + 'm' : Math.floor(s / 86400) + 'd' + two(s % 86400 / 3600) + 'h';
function element(name, text) {
  const e = document.createElement(name);
  e.textContent = text;
  return e;
}
function troubles(s) {
  at('trouble').hidden = s.trouble.length === 0;
  at('troubles').replaceChildren(...s.trouble.map(t => {
    const li = document.createElement('li'), todo = document.createElement('p');
    if (t.repo) li.append(element('b', t.repo), ': ');
    todo.append(...t.todo.split('`').map((part, i) => i % 2 ? element('code', part) : part));
    li.append(t.what, ' ', element('span', t.since_unix_s ? 'for ' + span(Math.max(0, s.now_ms / 1000 - t.since_unix_s)) : ''), todo);
    return li;
  }));
}
function state(s) {
  const n = s.trouble.length;
  at('state').className = n || !s.ready || s.draining ? 'bad' : '';
  at('state').textContent = (s.draining ? 'draining: the server stops when all transfers are done'
    : !s.disk.healthy || s.disk.full ? 'serving only cached objects' : !s.ready ? 'not ready' : 'serving') +
    (n ? ', ' + count(n, 'thing needs', 'things need') + ' attention' : '');
}
function fills(list) {
  at('fills-none').hidden = list.length > 0;
  at('fills').replaceChildren(...list.map(f => {
    const li = document.createElement('li'), bar = document.createElement('progress'), text = document.createElement('span');
    if (f.total !== null) { bar.max = f.total || 1; bar.value = f.have; }
    text.textContent = ' ' + size(f.have) + (f.total !== null ? ' of ' + size(f.total) : '') + ', ' + size(f.rate) + '/s, ' +
      f.readers + (f.readers === 1 ? ' reader' : ' readers');
    li.append(f.repo + '/' + f.key, text, bar);
    return li;
  }));
}
function swarms(list) {
  if (!list || !at('swarms')) return;
  at('swarms-none').hidden = list.length > 0;
  at('swarms').replaceChildren(...list.map(s => {
    const li = document.createElement('li'), bar = document.createElement('progress'), text = document.createElement('span');
    bar.max = s.chunks; bar.value = s.had;
    text.textContent = ' ' + size(s.size) + ', ' + s.members + (s.members === 1 ? ' node, ' : ' nodes, ') + s.had + ' of ' + s.chunks +
      (s.chunks === 1 ? ' chunk' : ' chunks') + ' with them';
    li.append(s.digest === null ? '…' : s.key ? s.repo + '/' + s.key : s.digest, text, bar);
    return li;
  }));
}
function repos(list) {
  for (const r of list) {
    const row = document.querySelector('tr[data-repo="' + CSS.escape(r.name) + '"]');
    if (row) row.classList.toggle('fails', r.upstream.failures >= 3);
    if (row) [r.requests, size(r.bytes), r.hit_ratio === null ? '–' : share(r.hit_ratio)].forEach((v, i) => { row.cells[3 + i].textContent = v; });
  }
}
function show(s) {
  state(s);
  troubles(s);
  at('hit').textContent = s.hit_ratio === null ? '–' : share(s.hit_ratio);
  at('out').textContent = size(s.bytes_out);
  at('out-rate').textContent = rate(s, 'bytes_out');
  at('in').textContent = size(s.upstream_bytes);
  at('in-rate').textContent = rate(s, 'upstream_bytes');
  at('open').textContent = s.connections.open;
  at('disk').value = s.disk.quota ? 100 * s.disk.used / s.disk.quota : 0;
  at('disk-text').textContent = size(s.disk.used) + ' of ' + size(s.disk.quota) + ' in ' + count(s.disk.blobs, 'file', 'files') + ', ' + size(s.disk.free) + ' free on the disk';
  fills(s.fills);
  swarms(s.swarms);
  repos(s.repos);
  before = s;
}
async function poll() {
  try {
    const r = await fetch('/-/status.json', { cache: 'no-store' });
    if (!r.ok) throw new Error(r.status);
    show(await r.json());
  } catch (e) {
    at('state').className = 'bad';
    at('state').textContent = 'no answer from the server';
  }
  setTimeout(poll, document.hidden ? 15000 : 2000);
}
poll();
