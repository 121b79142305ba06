/** The status of a notification channel, and how its receiver responded last. */
import type { ChannelSummary } from '../../src/operator/notifications/channels.ts'
import type { Json } from '../api.ts'
import { fill } from '../texts/languages.ts'
import { stateIn, useLocalized } from '../texts.ts'
import { Time } from './values.tsx'

export type Channel = Json<ChannelSummary>

export function ChannelState({ channel: { status, pending, failed } }: { channel: Channel }) {
  const { t, number } = useLocalized()
  return (
    <span class="response">
      <span class={`tag ${status === 'active' ? 'good' : 'warn'}`}>
        {stateIn(t.endpoints.states, status)}
      </span>
      {pending > 0 && <span class="muted"> {fill(t.notifications.pending, { count: number(pending) })}</span>}
      {failed > 0 && (
        <span class="bad-text"> {fill(t.notifications.failedCount, { count: number(failed) })}</span>
      )}
    </span>
  )
}

export function ChannelResponse({ channel: { lastResponse } }: { channel: Channel }) {
  const { t } = useLocalized()
  if (lastResponse === null) return <span class="muted">{t.endpoints.nothingSent}</span>
  const { at, wasAccepted, status, reason } = lastResponse
  return (
    <span class="response">
      <span class={`tag ${wasAccepted ? 'good' : 'bad'}`}>{status ?? t.endpoints.noResponse}</span>{' '}
      {!wasAccepted && <span>{reason} </span>}
      <Time at={at} />
    </span>
  )
}
