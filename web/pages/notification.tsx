/** One notification channel: its settings, its messages, and what operators do with it. */
import { useEffect, useState } from 'preact/hooks'
import type { TestResult } from '../../src/operator/notifications/test-channel.ts'
import { type Json, post } from '../api.ts'
import { useAction, useQuery } from '../hooks.ts'
import { ActivityPanel } from '../parts/activity.tsx'
import { EditChannel } from '../parts/channel-form.tsx'
import { ChannelMessages } from '../parts/channel-messages.tsx'
import { type Channel, ChannelResponse, ChannelState } from '../parts/channel-state.tsx'
import { Confirm } from '../parts/dialog.tsx'
import { Facts, Page, Panel } from '../parts/page.tsx'
import { ActionFailure, Failure, Loading } from '../parts/states.tsx'
import { TestDialog } from '../parts/test-dialog.tsx'
import { Payload, Time } from '../parts/values.tsx'
import { Link, navigate } from '../router.tsx'
import { useRole } from '../session.ts'
import { fill } from '../texts/languages.ts'
import { useLocalized } from '../texts.ts'

const REFRESH_MS = 5_000
const LIST = '/settings/notifications'

export function NotificationPage({ id }: { id: string }) {
  const { t } = useLocalized()
  const isManager = useRole('manager')
  const { data, error, reload } = useQuery<{ channel: Channel }>(`/api/notifications/${id}`, REFRESH_MS)
  const [round, setRound] = useState(0)
  const trail = <Link href={LIST}>{t.notifications.title}</Link>
  const channel = data?.channel
  if (channel === undefined) {
    return (
      <Page title={`${t.notifications.channel} ${id}`} trail={trail}>
        {error ? <Failure error={error} retry={reload} /> : <Loading />}
      </Page>
    )
  }
  const onChange = () => {
    reload()
    setRound((count) => count + 1)
  }
  return (
    <Page
      title={channel.name || t.notifications.formats[channel.format]}
      trail={trail}
      lead={<ChannelState channel={channel} />}
      actions={isManager && <Actions channel={channel} onChange={onChange} />}
    >
      <Settings channel={channel} onChange={onChange} />
      <ChannelMessages channel={channel} round={round} />
      <ActivityPanel key={round} kind="notification_channel" id={id} />
    </Page>
  )
}

function Actions({ channel, onChange }: { channel: Channel; onChange: () => void }) {
  const { t } = useLocalized()
  const { id, status } = channel
  const { isRunning, error, run } = useAction()
  const [message, setMessage] = useState('')
  const [open, setOpen] = useState<'test' | 'remove' | null>(null)
  const change = (action: 'pause' | 'resume') =>
    run(async () => {
      await post(`/api/notifications/${id}/${action}`)
      setMessage(action === 'pause' ? t.notifications.paused : t.notifications.resumed)
      onChange()
    })
  const close = () => {
    setOpen(null)
    onChange()
  }
  return (
    <>
      <span role="status" class="muted small-text">
        {message}
      </span>
      <ActionFailure error={error} />
      <button type="button" onClick={() => setOpen('test')}>
        {t.notifications.test}
      </button>
      <button
        type="button"
        disabled={isRunning}
        onClick={() => change(status === 'active' ? 'pause' : 'resume')}
      >
        {status === 'active' ? t.endpoints.pause : t.endpoints.resume}
      </button>
      <button type="button" class="danger quiet-danger" onClick={() => setOpen('remove')}>
        {t.endpoints.remove}
      </button>
      {open === 'test' && <TestChannel id={id} onClose={close} />}
      {open === 'remove' && <RemoveChannel id={id} onClose={() => setOpen(null)} />}
    </>
  )
}

function Settings({ channel, onChange }: { channel: Channel; onChange: () => void }) {
  const { t } = useLocalized()
  const isManager = useRole('manager')
  const [isEditing, setEditing] = useState(false)
  const { format } = channel
  const yes = (value: boolean) => (value ? t.common.yes : t.common.no)
  return (
    <Panel
      title={t.endpoints.settings}
      actions={
        isManager && (
          <button type="button" onClick={() => setEditing(true)}>
            {t.endpoints.edit}
          </button>
        )
      }
    >
      <Facts
        items={[
          [t.endpoints.format, t.notifications.formats[format]],
          [t.notifications.targets[format], <code key="t">{channel.target}</code>],
          [t.notifications.about, channel.organizationName ?? t.operators.allOrganizations],
          [t.endpoints.privateNetwork, yes(channel.allowPrivateNetwork)],
          [t.endpoints.lastResponse, <ChannelResponse key="l" channel={channel} />],
          [t.common.created, <Time key="c" at={channel.createdAt} />],
        ]}
      />
      {isEditing && (
        <EditChannel
          channel={channel}
          onClose={() => setEditing(false)}
          onSaved={() => {
            setEditing(false)
            onChange()
          }}
        />
      )}
    </Panel>
  )
}

/** Sends a test message as soon as it opens. */
function TestChannel({ id, onClose }: { id: string; onClose: () => void }) {
  const { t, number } = useLocalized()
  const { isRunning, error, run } = useAction()
  const [result, setResult] = useState<Json<TestResult> | null>(null)
  const send = () =>
    run(async () => {
      setResult(null)
      setResult(await post(`/api/notifications/${id}/test`))
    })
  useEffect(send, [])
  return (
    <TestDialog title={t.notifications.testTitle} {...{ isRunning, error, onSend: send, onClose }}>
      {result !== null && (
        <>
          <p class="response" role="status">
            <span class={`tag ${result.wasAccepted ? 'good' : 'bad'}`}>
              {result.status ?? t.endpoints.noResponse}
            </span>{' '}
            {[
              result.wasAccepted ? t.notifications.accepted : result.reason,
              fill(t.endpoints.milliseconds, { number: number(result.durationMs) }),
            ]
              .filter(Boolean)
              .join(' · ')}
          </p>
          <Payload text={result.text} isShort />
        </>
      )}
    </TestDialog>
  )
}

function RemoveChannel({ id, onClose }: { id: string; onClose: () => void }) {
  const { t } = useLocalized()
  const { isRunning, error, run } = useAction()
  const remove = async () => {
    await post(`/api/notifications/${id}/remove`)
    navigate(LIST)
  }
  return (
    <Confirm
      title={t.notifications.removeTitle}
      text={t.notifications.removeText}
      submit={t.endpoints.removeSubmit}
      isRunning={isRunning}
      onClose={onClose}
      onConfirm={() => run(remove)}
    >
      <ActionFailure error={error} />
    </Confirm>
  )
}
