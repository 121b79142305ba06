/**
 * Stores what follows from a pass, in one transaction:
 *
 * 1. `lockPass` makes sure that no later pass has begun, and lets later ones wait.
 * 2. Each account is compared with its row of account_alert (transitions.ts).
 * 3. Announcements become parts of messages (plan-messages.ts), beside reminders and messages about LINE (platform.ts).
 */
import type { AccountId } from '../../accounts/account.ts'
import type { Transactions } from '../../postgres/statement.ts'
import {
  lockAccounts,
  lockActiveChannels,
  lockPass,
  readAlerts,
  storeAlerts,
  storePlatformState,
} from './alert-rows.ts'
import * as rows from './message-rows.ts'
import type { Picture, Seen } from './picture.ts'
import { indexChannels, type Message, planMessages, planReminders } from './plan-messages.ts'
import { type Checks, isUnclear, stepPlatform } from './platform.ts'
import { announceEndOfOutage, announceOutage } from './platform-messages.ts'
import {
  type Alert,
  type Announcement,
  dueReminders,
  isChanged,
  type Sighting,
  stepAlert,
} from './transitions.ts'

export interface Pass {
  pass: bigint
  picture: Picture
  checks: Checks
}

/** Returns false if a later pass has begun. */
export function storePass(database: Transactions, { pass, picture, checks }: Pass): Promise<boolean> {
  return database.transaction(async (transaction) => {
    const watch = await lockPass(transaction, pass)
    if (watch === null) return false
    const { now, upAt } = watch
    const channels = await lockActiveChannels(transaction)
    const platform = stepPlatform(watch, checks, now)
    const seen = { transaction, picture, channels, now }
    if (platform.event === 'down') await announceOutage(seen, platform.state, checks)
    if (platform.event === 'up') await announceEndOfOutage(seen)
    const isIgnored = (sighting: Sighting) => isUnclear(sighting, platform.state, upAt)
    await storeAccounts(seen, isIgnored)
    // Last, because the row is locked from here on.
    await storePlatformState(transaction, platform.state)
    return true
  })
}

async function storeAccounts(seen: Seen, isIgnored: (sighting: Sighting) => boolean): Promise<void> {
  const { transaction, picture, channels, now } = seen
  const stored = await readAlerts(transaction)
  const { alerts, announcements } = stepAll(seen, stored, isIgnored)
  const reminded = dueReminders(alerts.values(), now)
  for (const alert of reminded) alerts.set(alert.id, remindedAt(alert, now))
  const ids = new Set([...stored.keys(), ...alerts.keys()])
  const changed = [...ids].filter((id) => isChanged(stored.get(id) ?? null, alerts.get(id) ?? null))
  const present = await lockAccounts(transaction, changed)
  await storeMessages(
    seen,
    announcements.filter(({ account }) => present.has(account.id)),
    planReminders(
      reminded.filter(({ id }) => present.has(id)),
      picture.problems,
      channels,
      now,
    ),
  )
  const kept = changed.filter((id) => present.has(id))
  await storeAlerts(
    transaction,
    kept.flatMap((id) => alerts.get(id) ?? []),
    kept.filter((id) => !alerts.has(id)),
  )
}

const remindedAt = (alert: Alert, now: number): Alert => ({
  ...alert,
  announced: alert.announced && { ...alert.announced, remindedAt: now },
})

/** Returns all alerts as they are after the pass. Accounts whose status is unclear stay as they are. */
function stepAll(
  { picture, channels, now }: Seen,
  stored: ReadonlyMap<AccountId, Alert>,
  isIgnored: (sighting: Sighting) => boolean,
): { alerts: Map<AccountId, Alert>; announcements: Announcement[] } {
  const alerts = new Map(stored)
  const announcements: Announcement[] = []
  const channelsOf = indexChannels(channels)
  const recovered = [...stored.values()].filter(({ id }) => !picture.problems.has(id)).map(recoveredSighting)
  for (const sighting of [...picture.problems.values(), ...recovered]) {
    if (isIgnored(sighting)) continue
    const isCovered = channelsOf(sighting.organizationId).length > 0
    const step = stepAlert(stored.get(sighting.id) ?? null, sighting, isCovered, now)
    if (step.alert === null) alerts.delete(sighting.id)
    else alerts.set(sighting.id, step.alert)
    if (step.announcement !== null) announcements.push(step.announcement)
  }
  return { alerts, announcements }
}

const recoveredSighting = ({ id, organizationId }: Alert): Sighting => ({
  ...{ id, organizationId, status: 'ok', problem: null, checkedAt: null },
})

async function storeMessages(
  { transaction, picture, channels, now }: Seen,
  announcements: Announcement[],
  reminders: Message[],
): Promise<void> {
  if (announcements.length === 0 && reminders.length === 0) return
  const waiting = await rows.lockWaitingMessages(transaction)
  const ids = announcements.map(({ account }) => account.id)
  const waitingAccounts = await rows.readWaitingAccounts(transaction, waiting, ids)
  const recent = await rows.readRecent(transaction)
  const plan = planMessages(announcements, { channels, waiting, waitingAccounts, recent }, now)
  const messages = [...plan.messages, ...reminders]
  await rows.removeAccounts(transaction, plan.removed)
  const added = messages.filter(({ id }) => id === null)
  const addedIds = await rows.insertMessages(
    transaction,
    added.map((message) => ({ ...message, channelId: message.channel.id, facts: factsOf(message, picture) })),
  )
  const idOf = new Map(added.map((message, index) => [message, addedIds[index] as bigint]))
  await rows.storeFacts(
    transaction,
    messages.flatMap((message) =>
      message.id === null ? [] : { id: message.id, facts: factsOf(message, picture) },
    ),
  )
  await rows.storeAccounts(
    transaction,
    messages.flatMap((message) => {
      const messageId = message.id ?? (idOf.get(message) as bigint)
      return message.accounts.map((account) => ({ ...account, messageId }))
    }),
  )
  await rows.deleteEmptyMessages(transaction, plan.removed)
}

/** Whether this service itself is the likely cause. */
function factsOf({ channel: { organizationId }, kind, reason }: Message, picture: Picture): object {
  if (kind !== 'problem') return {}
  const isOurs =
    reason === 'deliveries_failed' ||
    ((reason === 'webhook_test_failed' || reason === 'platform_unreachable') &&
      picture.isCommon(organizationId, reason))
  return { cause: isOurs ? 'service' : null }
}
