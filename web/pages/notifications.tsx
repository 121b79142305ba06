/** The notification channels: where messages about accounts are sent. */
import { type Result, useRead } from '../operations.ts'
import { AddChannel } from '../parts/channel-form.tsx'
import { ResponseTag } from '../parts/destination.tsx'
import { DialogButton } from '../parts/dialog.tsx'
import { SettingsPage } from '../parts/settings-page.tsx'
import { Empty, Loaded } from '../parts/states.tsx'
import { Table } from '../parts/table.tsx'
import { Time } from '../parts/values.tsx'
import { Link } from '../router.tsx'
import { useRole } from '../session.ts'
import { describeFailure } from '../texts/service.ts'
import { fill, stateIn, useLocalized } from '../texts.ts'

type Channel = Result<'channel.list'>['channels'][number]

const REFRESH_MS = 10_000

export function NotificationsPage() {
  const { t } = useLocalized()
  const isManager = useRole('manager')
  const query = useRead('channel.list', null, {}, REFRESH_MS)
  const add = (
    <DialogButton class="primary" label={t.notifications.add} onClosed={query.reload}>
      {(close) => <AddChannel canEmail={query.data?.canEmail ?? false} onClose={close} />}
    </DialogButton>
  )
  return (
    <SettingsPage section="notifications" lead={t.notifications.lead} actions={isManager && add}>
      <Loaded query={query}>
        {({ channels }) =>
          channels.length === 0 ? (
            <Empty title={t.notifications.empty}>{t.notifications.emptyHelp}</Empty>
          ) : (
            <ChannelTable channels={channels} />
          )
        }
      </Loaded>
    </SettingsPage>
  )
}

function ChannelTable({ channels }: { channels: Channel[] }) {
  const { t } = useLocalized()
  return (
    <Table
      rows={channels}
      columns={[
        [
          t.notifications.channel,
          ({ id, name, format, target }) => (
            <>
              <Link href={`/settings/notifications/${id}`}>{name || t.notifications.formats[format]}</Link>
              <div class="sub">
                {t.notifications.formats[format]} · {target}
              </div>
            </>
          ),
        ],
        [t.common.status, (channel) => <ChannelState channel={channel} />],
        [t.manage.organization, ({ organizationName }) => organizationName ?? t.common.all, 'medium-only'],
        [t.endpoints.lastResponse, (channel) => <ChannelResponse channel={channel} />, 'medium-only'],
      ]}
    />
  )
}

export function ChannelState({ channel: { status, pending, failed } }: { channel: Channel }) {
  const { t, number } = useLocalized()
  return (
    <span class="response">
      <span class={`tag ${status === 'active' ? 'good' : 'warning'}`}>
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
      <ResponseTag wasAccepted={wasAccepted} status={status}>
        {!wasAccepted && <span>{describeFailure(t, reason)} </span>}
        <Time at={at} />
      </ResponseTag>
    </span>
  )
}
