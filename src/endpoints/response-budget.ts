/**
 * What a receiver may make the HTTP parser do. 64 KiB of `103`, of one-byte chunks or of empty lines take the event loop up to 28 ms,
 * and a socket delivers that in one piece. So bytes and lines are counted before the parser sees them. What exceeds the budget is
 * overwritten, and the connection is closed. Only the status and Retry-After are needed, so a long body is no failure.
 */
import type { Socket } from 'node:net'

/** Heads have 16 KiB at most in Node.js. Bodies of webhook receivers have some bytes, error pages some KiB. */
const RESPONSE_MAX_BYTES = 20 * 1024
/** Lines of heads, chunk sizes, and lines of a body: 256 one-byte chunks take 0.7 ms. */
const RESPONSE_MAX_LINES = 512
/** Status lines of 100 Continue, 103 Early Hints and the final response, in one piece. Each 1xx takes 15 µs. */
const STATUS_LINES_MAX = 10
const STATUS_LINE_1XX = /^HTTP\/\d\.\d 1/
/** Tickets for a resumption of the TLS session, of which servers send two. */
const TLS_TICKETS_MAX = 8
const LINE_FEED = 10

interface Budget {
  bytes: number
  lines: number
  statusLines: number
  exceeded: () => void
}

/** The budget of the attempt that uses the socket. Undefined: no request is in flight, so nothing may arrive. */
const budgets = new WeakMap<Socket, Budget>()
const watched = new WeakSet<Socket>()

/** Returns a function that ends the attempt. @param exceeded is called before the parser sees the end of the budget */
export function limitResponse(socket: Socket, exceeded: () => void): () => void {
  const budget = {
    bytes: RESPONSE_MAX_BYTES,
    lines: RESPONSE_MAX_LINES,
    statusLines: STATUS_LINES_MAX,
    exceeded,
  }
  budgets.set(socket, budget)
  if (!watched.has(socket)) watch(socket)
  return () => {
    if (budgets.get(socket) === budget) budgets.delete(socket)
  }
}

function watch(socket: Socket): void {
  watched.add(socket)
  socket.prependListener('data', (chunk: Buffer) => {
    const budget = budgets.get(socket)
    const allowed = budget === undefined ? 0 : spend(budget, chunk)
    if (allowed === chunk.length) return
    chunk.fill(0, allowed)
    if (budget === undefined) socket.destroy()
    else budget.exceeded()
  })
  let tickets = 0
  socket.on('session', () => {
    tickets += 1
    if (tickets > TLS_TICKETS_MAX) socket.destroy()
  })
}

/** Returns how many bytes of the chunk are within the budget. */
function spend(budget: Budget, chunk: Buffer): number {
  const length = Math.min(chunk.length, budget.bytes)
  budget.bytes -= length
  for (let at = chunk.indexOf(LINE_FEED); at >= 0 && at < length; at = chunk.indexOf(LINE_FEED, at + 1)) {
    budget.lines -= 1
    if (STATUS_LINE_1XX.test(chunk.toString('latin1', at + 1, at + 11))) budget.statusLines -= 1
    if (budget.lines < 0 || budget.statusLines < 0) return at
  }
  return length
}
