// cache_tests.mjs - lets the suite http-tests/cache-tests run through a mirror; node loads it before the suite's client and before
// its origin (--import). The suite's own files are used as they are.
//
// The suite's client configures the origin by PUT, and numbers its requests in the field Req-Num, which the origin reads. A mirror
// is read only, and forwards no fields that it does not know. So the client's PUTs, and its look at what the origin has seen, go to
// the origin directly, and it tells the origin the number of its next request in the same way.
import http from 'node:http'
import { register } from 'node:module'

const origin = process.env.CACHE_TESTS_ORIGIN
const plainFetch = globalThis.fetch

// --- the client ---

async function numberRequest (url, init) {
  const number = init.headers.find(h => h[0] === 'Req-Num')
  if (number) await plainFetch(`${origin}/number${url.pathname.slice('/mirror/test'.length)}?${number[1]}`)
}

globalThis.fetch = async (address, init = {}) => {
  const url = new URL(address)
  if (url.pathname.startsWith('/mirror/test/')) {
    await numberRequest(url, init)
    return plainFetch(address, init)
  }
  return plainFetch(origin + url.pathname.slice('/mirror'.length), init)
}

// The client's only package, undici, is a part of node itself. Node's copy speaks an older version of the interface between
// dispatchers and handlers, so interim responses are reported to the suite's handler here.
const undici = `
await fetch('data:,')
const builtIn = globalThis[Symbol.for('undici.globalDispatcher.1')]
const pairs = raw => Object.fromEntries(Array.from({ length: raw.length / 2 }, (_, i) =>
  [String(raw[2 * i]).toLowerCase(), String(raw[2 * i + 1])]))
export class Agent {
  compose (interceptor) {
    return {
      dispatch (options, handler) {
        const send = (o, watcher) => builtIn.dispatch(o, new Proxy(handler, {
          get (target, name) {
            if (name !== 'onHeaders') return typeof target[name] === 'function' ? target[name].bind(target) : target[name]
            return (status, raw, resume, text) => {
              if (status < 200) watcher.onResponseStart(null, status, pairs(raw), text)
              return target.onHeaders(status, raw, resume, text)
            }
          }
        }))
        return interceptor(send)(options, {})
      }
    }
  }
}`
const shim = 'data:text/javascript,' + encodeURIComponent(undici)
register('data:text/javascript,' + encodeURIComponent(`
export const resolve = (name, context, next) =>
  name === 'undici' ? { url: ${JSON.stringify(shim)}, shortCircuit: true } : next(name, context)`))

// --- the origin ---

const numbers = new Map() // by the test's path
const createServer = http.createServer

http.createServer = handler => createServer((request, response) => {
  const url = new URL(request.url, 'http://origin')
  if (url.pathname.startsWith('/number/')) {
    numbers.set(url.pathname.split('/')[2], url.search.slice(1))
    response.end()
    return
  }
  const number = numbers.get(url.pathname.split('/')[2])
  if (number) request.headers['req-num'] = number
  handler(request, response)
})
