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
  return ', ' + size(Math.max(0, now[field] - before[field]) / (now.now_ms - before.now_ms) * 1000) + '/s';
}
function state(s) {
  const bad = !s.ready || s.draining || !s.reload.ok || s.disk.full;
  at('state').className = bad ? 'bad' : '';
  at('state').textContent = s.draining ? 'draining: it stops when all transfers are done'
    : !s.ready ? 'not ready' : s.disk.full ? 'the disk is full: only what is cached is served'
    : !s.reload.ok ? 'the last reload failed: the old settings stand' : 'serving';
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
    if (row) [r.requests, size(r.bytes), r.hit_ratio === null ? '' : share(r.hit_ratio)].forEach((v, i) => { row.cells[3 + i].textContent = v; });
  }
}
function show(s) {
  state(s);
  at('hit').textContent = s.hit_ratio === null ? '–' : share(s.hit_ratio);
  at('out').textContent = size(s.bytes_out);
  at('out-rate').textContent = rate(s, 'bytes_out');
  at('in').textContent = size(s.upstream_bytes);
  at('in-rate').textContent = rate(s, 'upstream_bytes');
  at('open').textContent = s.connections.open;
  at('disk').value = s.disk.quota ? 100 * s.disk.used / s.disk.quota : 0;
  at('disk-text').textContent = size(s.disk.used) + ' of ' + size(s.disk.quota) + ' in ' + s.disk.blobs + ' files, ' + size(s.disk.free) + ' free on the disk';
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
