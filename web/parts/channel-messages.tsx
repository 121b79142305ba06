/** The messages of a notification channel: when, about what, whether it was accepted, and the text. */
import type { ChannelSummary } from '../../src/watch/notifications/channels.ts'
import type { Json } from '../api.ts'
import { serverNowMs } from '../clock.ts'
import { type Item, useItems } from '../operations.ts'
import { describeFailure } from '../texts/service.ts'
import { fill, stateIn, useLocalized } from '../texts.ts'
import { Panel } from './page.tsx'
import { ListView } from './states.tsx'
import { Payload, Time } from './values.tsx'

type Channel = Json<ChannelSummary>
type Message = Item<'channel.messages'>

export function ChannelMessages({ channel }: { channel: Channel }) {
  const { t } = useLocalized()
  const list = useItems('channel.messages', channel.id)
  return (
    <Panel title={t.notifications.messages}>
      <p class="muted small-text">{t.notifications.messagesLead}</p>
      <ListView list={list} empty={<p class="muted">{t.notifications.noMessages}</p>}>
        {(messages) => (
          <ol class="messages">
            {messages.map((message, index) => (
              <MessageItem key={message.id} message={message} channel={channel} isOpen={index === 0} />
            ))}
          </ol>
        )}
      </ListView>
    </Panel>
  )
}

function MessageItem({ message, channel, isOpen }: { message: Message; channel: Channel; isOpen: boolean }) {
  const { t, number } = useLocalized()
  const { kind, reason, accounts, accountNames, createdAt, sentAt, failedAt, text } = message
  const isOver = sentAt !== null || failedAt !== null
  const names = accountNames.join(', ')
  return (
    <li>
      <div class="response">
        <strong>{stateIn(t.notifications.kinds, kind)}</strong>{' '}
        {reason !== null && <span>{stateIn(t.reasons, reason)} </span>}
        {accounts > 0 && (
          <span class="muted">
            {accounts > accountNames.length
              ? `${fill(t.notifications.accounts, { count: number(accounts) })}: ${names} …`
              : names}
          </span>
        )}
      </div>
      <div class="muted">
        <Time at={createdAt} /> <MessageState message={message} channel={channel} />
      </div>
      <details open={isOpen}>
        <summary>{isOver ? t.notifications.textSent : t.notifications.textNow}</summary>
        <Payload text={text} isShort />
      </details>
    </li>
  )
}

function MessageState({ message, channel }: { message: Message; channel: Channel }) {
  const { t, dateTime } = useLocalized()
  const { sentAt, failedAt, dueAt, attempts, status, answer } = message
  const response = [status, answer === 'expired' ? t.notifications.expired : describeFailure(t, answer ?? '')]
    .filter(Boolean)
    .join(' ')
  if (sentAt !== null) {
    return (
      <>
        <span class="tag good">{t.notifications.sent}</span> <Time at={sentAt} />
      </>
    )
  }
  if (failedAt !== null) {
    return (
      <>
        <span class="tag bad">{t.notifications.failed}</span> {response}
      </>
    )
  }
  const isDue = Date.parse(dueAt) <= serverNowMs()
  const waiting =
    channel.status !== 'active'
      ? t.notifications.waitsForResume
      : isDue
        ? t.notifications.sending
        : fill(t.notifications.waits, { time: dateTime(dueAt) })
  return (
    <>
      <span class="tag warning">{attempts > 0 ? t.notifications.retrying : t.notifications.waiting}</span>{' '}
      {[attempts > 0 ? response : '', waiting].filter(Boolean).join(' · ')}
    </>
  )
}
