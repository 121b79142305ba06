import { expect, it } from 'vitest'
import { endpointState } from '../../src/endpoints/endpoint-state.ts'

const idle = { status: 'active', pending: 0, failed: 0, oldestPendingSeconds: null, lastAnswer: null }
const waiting = { ...idle, pending: 226, oldestPendingSeconds: 38 * 60 }

it.each([
  ['active', idle, 'nothing was sent'],
  ['active', { ...waiting, oldestPendingSeconds: 599, lastAnswer: { status: 200 } }, 'the backlog is young'],
  ['failing', { ...waiting, lastAnswer: { status: null } }, 'there was no response'],
  ['failing', { ...waiting, lastAnswer: { status: 503 } }, 'the receiver refuses'],
  ['failing', { ...idle, failed: 1, lastAnswer: { status: 500 } }, 'the last delivery has failed'],
  [
    'slow',
    { ...waiting, lastAnswer: { status: 204 } },
    'the receiver accepts, but deliveries wait for 38 minutes',
  ],
  ['slow', waiting, 'nothing was sent for 38 minutes'],
  ['active', { ...idle, lastAnswer: { status: 500 } }, 'nothing waits and nothing has failed'],
  ['paused', { ...waiting, status: 'paused', lastAnswer: { status: 410 } }, 'it is paused'],
])('an endpoint is %s if %j, because %s', (state, facts, _) => {
  expect(endpointState(facts)).toBe(state)
})
