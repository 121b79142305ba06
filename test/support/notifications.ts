/** Channels and messages of notifications, as the watch and operators store them. */
import { onTestFinished } from 'vitest'
import { HostResolver } from '../../src/endpoints/resolver.ts'
import type { Transactions } from '../../src/postgres/statement.ts'
import * as outbox from '../../src/watch/notifications/outbox.ts'
import {
  type NotificationSender,
  notificationSender,
  type SenderParts,
} from '../../src/watch/notifications/send.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import { insertRow } from './load.ts'

export const SILENT_LOG = { info: () => undefined, warn: () => undefined, error: () => undefined } as never

export const newSender = (parts: Partial<SenderParts> = {}): NotificationSender =>
  notificationSender({
    ...{ isOwnUrl: () => false, route: new HostResolver() },
    ...{ smtp: null, consoleUrl: 'https://console.example' },
    ...parts,
  })

/** Starts an outbox that polls all the time, until the test ends. Returns what stops it. */
export function startOutbox(database: Transactions, sender = newSender()) {
  const stop = outbox.startOutbox(database, sender, SILENT_LOG, { pollMs: 20 })
  onTestFinished(stop)
  return stop
}

export const addChannel = (database: TextDatabase, columns: Record<string, unknown>): Promise<bigint> =>
  insertRow(database, 'notification_channel', { format: 'slack', allow_private_network: true, ...columns })

interface StoredAccount {
  id: bigint
  before?: string
  after?: string
  problem?: unknown
  since?: string
}

const SUSPENDED = { reason: 'suspended', status: 'broken', facts: {} }

/** Stores a message that is due. */
export async function addNotification(
  database: TextDatabase,
  channelId: bigint,
  accounts: StoredAccount[] = [],
  columns: Record<string, unknown> = {},
): Promise<bigint> {
  const all = {
    notification_channel_id: channelId,
    kind: 'problem',
    reason: 'suspended',
    ...columns,
  }
  return database.transaction(async (transaction) => {
    const id = await insertRow(transaction, 'notification', all)
    for (const { id: account, before = 'ok', after = 'broken', problem = SUSPENDED, since } of accounts) {
      await transaction.query(
        `insert into notification_account values ($1, $2, $3, $4, $5, coalesce($6, now()))`,
        [id, account, before, after, problem === null ? null : JSON.stringify(problem), since ?? null],
      )
    }
    return id
  })
}
