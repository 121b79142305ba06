/** One notification channel: its settings, its messages, and what operators do with it. */
import { useState } from 'preact/hooks'
import { useAction } from '../hooks.ts'
import { perform, type Result, useRead } from '../operations.ts'
import { ActivityLink } from '../parts/activity.tsx'
import { EditChannel, MESSAGE_LANGUAGES } from '../parts/channel-form.tsx'
import { ChannelMessages } from '../parts/channel-messages.tsx'
import { ResponseTag, TestDialog } from '../parts/destination.tsx'
import { DialogButton } from '../parts/dialog.tsx'
import { FormDialog } from '../parts/form.tsx'
import { Facts, Page, Panel } from '../parts/page.tsx'
import { ActionFailure, Loaded } from '../parts/states.tsx'
import { Payload, Time } from '../parts/values.tsx'
import { Link, navigate } from '../router.tsx'
import { useRole } from '../session.ts'
import { describeFailure } from '../texts/service.ts'
import { fill, useLocalized } from '../texts.ts'
import { ChannelResponse, ChannelState } from './notifications.tsx'

type Channel = Result<'channel.show'>['channel']

const REFRESH_MS = 5_000
const LIST = '/settings/notifications'

export function NotificationPage({ id }: { id: string }) {
  const { t } = useLocalized()
  const isManager = useRole('manager')
  const query = useRead('channel.show', id, {}, REFRESH_MS)
  const channel = query.data?.channel
  const onChange = query.reload
  return (
    <Page
      title={channel ? channel.name || t.notifications.formats[channel.format] : t.notifications.channel}
      trail={<Link href={LIST}>{t.notifications.title}</Link>}
      lead={channel && <ChannelState channel={channel} />}
      actions={channel && isManager && <Actions {...{ channel, onChange }} />}
    >
      <Loaded query={query}>
        {({ channel }) => (
          <>
            <Settings {...{ channel, onChange }} />
            <ChannelMessages
              key={[channel.pending, channel.failed, channel.lastResponse?.at].join(' ')}
              channel={channel}
            />
            <ActivityLink kind="notification_channel" id={id} />
          </>
        )}
      </Loaded>
    </Page>
  )
}

function Actions({ channel: { id, status }, onChange }: { channel: Channel; onChange: () => void }) {
  const { t } = useLocalized()
  const { isRunning, error, run } = useAction()
  const [message, setMessage] = useState('')
  const change = (action: 'pause' | 'resume') =>
    run(async () => {
      await perform(`channel.${action}`, id)
      setMessage(action === 'pause' ? t.notifications.paused : t.notifications.resumed)
      onChange()
    })
  const remove = async () => {
    await perform('channel.remove', id)
    navigate(LIST)
  }
  return (
    <>
      <span role="status" class="muted small-text">
        {message}
      </span>
      <ActionFailure error={error} />
      <DialogButton label={t.notifications.test} onClosed={onChange}>
        {(close) => (
          <TestDialog
            title={t.notifications.testTitle}
            send={() => perform('channel.test', id)}
            onClose={close}
          >
            {(result) => <TestOutcome result={result} />}
          </TestDialog>
        )}
      </DialogButton>
      <button
        type="button"
        disabled={isRunning}
        onClick={() => change(status === 'active' ? 'pause' : 'resume')}
      >
        {status === 'active' ? t.endpoints.pause : t.endpoints.resume}
      </button>
      <DialogButton class="danger quiet-danger" label={t.endpoints.remove}>
        {(close) => (
          <FormDialog
            title={t.notifications.removeTitle}
            submit={t.endpoints.removeSubmit}
            onSubmit={remove}
            onClose={close}
            isDangerous
          >
            <p>{t.notifications.removeText}</p>
          </FormDialog>
        )}
      </DialogButton>
    </>
  )
}

function Settings({ channel, onChange }: { channel: Channel; onChange: () => void }) {
  const { t } = useLocalized()
  const isManager = useRole('manager')
  const { format } = channel
  const edit = (
    <DialogButton label={t.endpoints.edit} onClosed={onChange}>
      {(close) => <EditChannel channel={channel} onClose={close} />}
    </DialogButton>
  )
  return (
    <Panel title={t.endpoints.settings} actions={isManager && edit}>
      <Facts
        items={[
          [t.endpoints.format, t.notifications.formats[format]],
          [t.notifications.targets[format], <code key="t">{channel.target}</code>],
          [t.notifications.language, MESSAGE_LANGUAGES[channel.language]],
          [t.notifications.about, channel.organizationName ?? t.operators.allOrganizations],
          [t.endpoints.privateNetwork, channel.allowPrivateNetwork ? t.common.yes : t.common.no],
          [t.endpoints.lastResponse, <ChannelResponse key="l" channel={channel} />],
          [t.common.created, <Time key="c" at={channel.createdAt} />],
        ]}
      />
    </Panel>
  )
}

function TestOutcome({
  result: { wasAccepted, status, reason, ...result },
}: {
  result: Result<'channel.test'>
}) {
  const { t, number } = useLocalized()
  const duration = fill(t.endpoints.milliseconds, { number: number(result.durationMs) })
  return (
    <>
      <p class="response" role="status">
        <ResponseTag wasAccepted={wasAccepted} status={status}>
          {[wasAccepted ? t.notifications.accepted : describeFailure(t, reason ?? ''), duration]
            .filter(Boolean)
            .join(' · ')}
        </ResponseTag>
      </p>
      <Payload text={result.text} isShort />
    </>
  )
}
