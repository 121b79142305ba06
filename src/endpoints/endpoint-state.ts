/** How an endpoint is doing, in one word: for the console and for `doctor`. */

/** An endpoint that accepts deliveries, but more slowly than they arrive. */
const SLOW_SECONDS = 600

interface Facts {
  status: string
  pending: number
  failed: number
  oldestPendingSeconds: number | null
  /** null: nothing was sent yet; status null: there was no response */
  lastAnswer: { status: number | null } | null
}

/**
 * An active endpoint fails if its last response was a refusal, or none, and something waits or has failed. It is slow if deliveries
 * wait although the last one was accepted. Any other endpoint has its stored status.
 */
export function endpointState({ status, pending, failed, oldestPendingSeconds, lastAnswer }: Facts): string {
  if (status !== 'active') return status
  const code = lastAnswer?.status ?? 0
  const isRefused = lastAnswer !== null && (code < 200 || code > 299)
  if (isRefused && pending + failed > 0) return 'failing'
  return pending > 0 && (oldestPendingSeconds ?? 0) >= SLOW_SECONDS ? 'slow' : 'active'
}
