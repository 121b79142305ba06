/**
 * What a notification says, read at the time of sending. Accounts that were removed, or moved to an organization that the channel is not
 * about, are left out.
 */
import type { OrganizationId } from '../../ids.ts'
import { type Queryable, type Row, statement } from '../../postgres/statement.ts'
import type { Problem } from '../account-status.ts'
import type { Language } from '../languages.ts'
import type { ChannelFormat } from './channels.ts'

/** Accounts that a message describes one by one. It counts the others. */
export const ACCOUNTS_MAX = 100

export type NotificationKind = 'problem' | 'recovery' | 'reminder' | 'platform_down' | 'platform_up' | 'test'

/** JSON has no 64-bit integers, so ids are texts. */
export interface NotifiedAccount {
  id: string
  name: string
  organizationId: string
  organizationName: string
  before: string
  after: string
  problem: Problem | null
  since: string
}

type NotificationFacts = {
  cause?: 'service' | 'line' | null
  /** of an outage */
  since?: string
  until?: string
  accounts?: number
}

export interface Notification {
  id: bigint
  kind: NotificationKind
  reason: string | null
  facts: NotificationFacts
  createdMs: number
  /** states periods as of this time, so that each attempt sends the same text */
  writtenMs: number
  /** the worst ones first, at most ACCOUNTS_MAX */
  accounts: NotifiedAccount[]
  accountCount: number
  brokenCount: number
  /** accounts that the channel is about */
  coveredCount: number
  coversAll: boolean
  language: Language
}

/** The same in every attempt. Contains the time, because ids are used again after a restore of the database. */
export const messageId = ({ id, createdMs }: Pick<Notification, 'id' | 'createdMs'>): string =>
  `ntf_${id}_${Math.floor(createdMs)}`

export interface NotificationTarget {
  id: bigint
  name: string
  organizationId: OrganizationId | null
  format: ChannelFormat
  target: string
  /** null unless the format is webhook */
  secret: string | null
  allowPrivateNetwork: boolean
}

/**
 * Other programs may store names of megabytes.
 *
 * $1 notification id bigint; $2 accounts int
 */
const selectNotification = statement('select-notification')`
    select n.id, n.kind, n.reason, n.facts, (extract(epoch from n.created_at) * 1000)::float8 as "createdMs",
           (extract(epoch from coalesce(n.first_attempt_at, now())) * 1000)::float8 as "writtenMs",
           listed.accounts, total.count as "accountCount", total.broken as "brokenCount", covered.count as "coveredCount",
           c.organization_id is null as "coversAll", c.language
      from notification n
      join notification_channel c on c.id = n.notification_channel_id
     cross join lateral (
       select count(*)::int as count, count(*) filter (where t.after = 'broken')::int as broken
         from notification_account t
         join official_account a on a.id = t.channel_oa_id
        where t.notification_id = n.id and (c.organization_id is null or a.organization_id = c.organization_id)) total
     cross join lateral (
       select count(*)::int as count from official_account
        where c.organization_id is null or organization_id = c.organization_id) covered
     cross join lateral (
       select coalesce(jsonb_agg(jsonb_build_object(
                'id', account.id::text, 'name', left(account.name, 200), 'organizationId', account.organization_id::text,
                'organizationName', left(account.organization_name, 200), 'before', account.before, 'after', account.after,
                'problem', account.problem, 'since', iso(account.since)) order by account.position), '[]') as accounts
         from (select a.id, a.name, a.organization_id, o.name as organization_name, t.before, t.after, t.problem, t.since,
                      row_number() over (
                        order by array_position(array['broken', 'degraded', 'quiet', 'ok'], t.after), a.id) as position
                 from notification_account t
                 join official_account a on a.id = t.channel_oa_id
                 join organization o on o.id = a.organization_id
                where t.notification_id = n.id and (c.organization_id is null or a.organization_id = c.organization_id)
                order by position limit $2) account) listed
     where n.id = $1`

/** Returns null if it was removed with its channel. */
export async function loadNotification(database: Queryable, id: bigint): Promise<Notification | null> {
  const [notification] = await database.query<Notification & Row>(selectNotification, [id, ACCOUNTS_MAX])
  return notification ?? null
}

const selectTarget = statement('select-notification-target')`
    select id, name, organization_id as "organizationId", format, target, secret, allow_private_network as "allowPrivateNetwork"
      from notification_channel where id = $1`

/** Returns null if the channel does not exist. Throws UnreadableSecret. */
export async function loadTarget(database: Queryable, id: bigint): Promise<NotificationTarget | null> {
  const [stored] = await database.query<NotificationTarget & Row>(selectTarget, [id])
  if (stored === undefined) return null
  const { secretKeys } = database
  const target = secretKeys.decrypt('notification_channel.target', id, stored.target)
  return { ...stored, target, secret: secretKeys.decrypt('notification_channel.secret', id, stored.secret) }
}
