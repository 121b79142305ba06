/** The notification channels: where messages about accounts are sent. */
import { useState } from 'preact/hooks'
import { useQuery } from '../hooks.ts'
import { AddChannel } from '../parts/channel-form.tsx'
import { type Channel, ChannelResponse, ChannelState } from '../parts/channel-state.tsx'
import { Page } from '../parts/page.tsx'
import { Empty, Failure, Loading } from '../parts/states.tsx'
import { Table } from '../parts/table.tsx'
import { Link } from '../router.tsx'
import { useRole } from '../session.ts'
import { useLocalized } from '../texts.ts'

const REFRESH_MS = 10_000

export function NotificationsPage() {
  const { t } = useLocalized()
  const isManager = useRole('manager')
  const { data, error, isLoading, reload } = useQuery<{ channels: Channel[]; canEmail: boolean }>(
    '/api/notifications',
    REFRESH_MS,
  )
  const [isAdding, setAdding] = useState(false)
  return (
    <Page
      title={t.notifications.title}
      trail={<Link href="/settings">{t.nav.settings}</Link>}
      lead={t.notifications.lead}
      actions={
        isManager && (
          <button type="button" class="primary" onClick={() => setAdding(true)}>
            {t.notifications.add}
          </button>
        )
      }
    >
      {error && <Failure error={error} retry={reload} />}
      {isLoading && <Loading />}
      {data?.channels.length === 0 && (
        <Empty title={t.notifications.empty}>{t.notifications.emptyHelp}</Empty>
      )}
      {data !== undefined && data.channels.length > 0 && <ChannelTable channels={data.channels} />}
      {isAdding && (
        <AddChannel
          canEmail={data?.canEmail ?? false}
          onClose={() => {
            setAdding(false)
            reload()
          }}
        />
      )}
    </Page>
  )
}

function ChannelTable({ channels }: { channels: Channel[] }) {
  const { t } = useLocalized()
  return (
    <Table
      columns={[
        t.notifications.channel,
        t.common.status,
        { label: t.manage.organization, class: 'medium-only' },
        { label: t.endpoints.lastResponse, class: 'medium-only' },
      ]}
    >
      {channels.map((channel) => (
        <tr key={channel.id}>
          <th scope="row" class="col-account">
            <Link href={`/settings/notifications/${channel.id}`}>
              {channel.name || t.notifications.formats[channel.format]}
            </Link>
            <div class="sub">
              {t.notifications.formats[channel.format]} · {channel.target}
            </div>
          </th>
          <td>
            <ChannelState channel={channel} />
          </td>
          <td class="medium-only">{channel.organizationName ?? t.common.all}</td>
          <td class="medium-only">
            <ChannelResponse channel={channel} />
          </td>
        </tr>
      ))}
    </Table>
  )
}
